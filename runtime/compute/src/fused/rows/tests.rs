//! Rows by number against plain gathering, and its gradient by autograd.

use candle_core::{DType, Device};

use super::super::reference::gradients;
use super::*;
use crate::parity::on_each_device;

/// One row twice, one never, in no order.
const ROWS: [u32; 5] = [3, 0, 3, 6, 5];

fn rows() -> Indices {
    ROWS.to_vec().into()
}

// A row is copied without a change; in bf16 a row that two go to is rounded once, by 2⁻⁸ of itself at most.
on_each_device! {
    fn picked_rows_are_those_of_their_numbers_and_their_gradients_go_back(on) tolerance(1e-7, 4e-3) {
        for width in [301, 304] {
            let (from, selected) = (on.normal("from", &[7, width]), on.normal("selected", &[5, width]));
            let from64 = on.leaf(&from);
            let expected = from64.index_select(&Tensor::new(&ROWS, &Device::Cpu).unwrap(), 0).unwrap();
            let found = gather_rows(&from, &rows()).unwrap();
            assert_eq!(found.dtype(), on.dtype);
            on.within("picked", &found, &expected, 0.0);
            let back = scatter_rows(&selected, &rows(), 7).unwrap();
            assert_eq!(back.dtype(), on.dtype);
            on.close("spread", &back, &gradients(&expected, &on.leaf(&selected), &[&from64])[0]);
        }
    }

    fn rows_that_are_not_picked_have_no_gradient(on) tolerance(0.0, 0.0) {
        let none = Indices::default();
        assert_eq!(gather_rows(&on.normal("from", &[7, 4]), &none).unwrap().dims(), [0, 4]);
        let back = scatter_rows(&on.normal("selected", &[0, 4]), &none, 7).unwrap();
        on.close("spread", &back, &Tensor::zeros((7, 4), DType::F64, &Device::Cpu).unwrap());
    }

    fn rows_past_the_last_are_refused(on) tolerance(0.0, 0.0) {
        let past = Indices::from(vec![7]);
        assert!(matches!(gather_rows(&on.normal("from", &[7, 4]), &past), Err(Error::Argument(_))));
        assert!(matches!(scatter_rows(&on.normal("selected", &[1, 4]), &past, 7), Err(Error::Argument(_))));
        assert!(matches!(scatter_rows(&on.normal("selected", &[2, 4]), &past, 8), Err(Error::Shape(_))));
    }

    fn stacked_rows_stand_one_under_another(on) tolerance(0.0, 0.0) {
        let parts = [on.normal("a", &[3, 37]), on.normal("b", &[0, 37]), on.normal("c", &[2, 37])];
        let references: Vec<Tensor> = parts.iter().map(|part| on.leaf(part).as_tensor().clone()).collect();
        on.close("stacked", &concat_rows(&parts).unwrap(), &Tensor::cat(&references, 0).unwrap());
        assert!(concat_rows(&[]).is_err());
        assert!(concat_rows(&[on.normal("a", &[3, 4]), on.normal("b", &[3, 5])]).is_err());
    }

    fn the_host_reads_the_numbers_of_a_view_and_no_others(on) tolerance(0.0, 0.0) {
        let all = on.normal("all", &[9, 5]);
        let view = all.narrow(0, 2, 3).unwrap();
        let expected: Vec<f32> = to_host_f32(&all).unwrap()[10..25].to_vec();
        assert_eq!(to_host_f32(&view).unwrap(), expected);
    }
}
