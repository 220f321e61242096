//! Columns against plain operations in f64.

use candle_core::DType;

use super::super::reference::gradients;
use super::*;
use crate::parity::on_each_device;

on_each_device! {
    fn parts_that_were_cut_can_be_joined_again(on) tolerance(0.0, 0.0) {
        for widths in [[24, 8, 8], [5, 31, 7]] {
            let joined = on.normal("joined", &[11, widths.iter().sum()]);
            let parts = split_columns(&joined, &widths).unwrap();
            let (reference, mut start) = (on.leaf(&joined), 0);
            for (part, width) in parts.iter().zip(widths) {
                on.close("part", part, &reference.narrow(1, start, width).unwrap());
                start += width;
            }
            on.close("joined", &concat_columns(&parts).unwrap(), &reference);
        }
    }

    fn no_rows_are_cut_into_none(on) tolerance(0.0, 0.0) {
        let parts = split_columns(&on.normal("joined", &[0, 5]), &[2, 3]).unwrap();
        assert_eq!(parts.iter().map(Tensor::dims).collect::<Vec<_>>(), [[0, 2], [0, 3]]);
        assert_eq!(concat_columns(&parts).unwrap().dims(), [0, 5]);
    }

    // In bf16 a result is rounded once for the factor, once for the bias.
    fn every_column_has_its_factor_and_bias(on) tolerance(5e-7, 8e-3) {
        for columns in [37, 48] {
            let (x, seed) = (on.normal("x", &[19, columns]), on.normal("seed", &[19, columns]));
            let (factors, bias) = (on.single("factors", &[columns]), on.single("bias", &[columns]));
            let (x64, factors64) = (on.leaf(&x), on.leaf(&factors));
            let scaled = x64.broadcast_mul(&factors64).unwrap();
            on.close("scaled", &scale_columns(&x, &factors, None).unwrap(), &scaled);
            let whole = scaled.broadcast_add(&on.leaf(&bias)).unwrap();
            on.close("and bias", &scale_columns(&x, &factors, Some(&bias)).unwrap(), &whole);
            let references = gradients(&scaled, &on.leaf(&seed), &[&factors64]);
            let found = scale_columns_gradient(&seed, &x).unwrap();
            assert_eq!(found.dtype(), DType::F32);
            on.within("gradient of the factors", &found, &references[0], 1e-6);
        }
    }

    fn widths_that_do_not_fit_are_refused(on) tolerance(0.0, 0.0) {
        let x = on.normal("x", &[3, 8]);
        assert!(matches!(split_columns(&x, &[4, 5]), Err(Error::Shape(_))));
        assert!(matches!(concat_columns(&[x.clone(), on.normal("y", &[2, 8])]), Err(Error::Shape(_))));
        assert!(matches!(scale_columns(&x, &on.single("factors", &[7]), None), Err(Error::Shape(_))));
        assert!(matches!(scale_columns_gradient(&x, &on.normal("y", &[3, 7])), Err(Error::Shape(_))));
    }
}
