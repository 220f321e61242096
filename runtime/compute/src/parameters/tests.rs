//! Views, copies and sums over the flat buffers.

use super::*;
use crate::Weight;
use crate::fused::reference::{bits, normal};
use crate::parity::on_each_device;

fn two() -> Parameters {
    Parameters::new(vec![("a".into(), vec![2, 2]), ("b".into(), vec![3])], &Device::Cpu).unwrap()
}

fn tensor(numbers: &[f32]) -> Tensor {
    Tensor::new(numbers, &Device::Cpu).unwrap()
}

#[test]
fn a_view_sees_what_is_set_later() {
    let parameters = two();
    let view = parameters.value(1).unwrap();
    parameters.set(1, &tensor(&[1.0, 2.0, 3.0])).unwrap();
    assert_eq!(view.to_vec1::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    assert_eq!(parameters.values().to_vec1::<f32>().unwrap(), [0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0]);
}

#[test]
fn gradients_add_up_in_their_own_slot_until_they_are_cleared() {
    let parameters = two();
    parameters.accumulate(1, &tensor(&[1.0, 2.0, 3.0])).unwrap();
    parameters.accumulate(1, &tensor(&[1.0, 0.0, -3.0])).unwrap();
    assert_eq!(parameters.gradient(1).unwrap().to_vec1::<f32>().unwrap(), [2.0, 2.0, 0.0]);
    assert_eq!(parameters.gradient(0).unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap(), 0.0);
    parameters.clear_gradients().unwrap();
    assert_eq!(parameters.gradient_norm().unwrap(), 0.0);
}

#[test]
fn a_copy_keeps_its_values_when_the_original_moves() {
    let parameters = two();
    parameters.set(1, &tensor(&[1.0, 2.0, 3.0])).unwrap();
    let copy = parameters.detached_copy().unwrap();
    parameters.set(1, &tensor(&[9.0, 9.0, 9.0])).unwrap();
    assert_eq!(copy.value(1).unwrap().to_vec1::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    parameters.copy_from(&copy).unwrap();
    assert_eq!(parameters.value(1).unwrap().to_vec1::<f32>().unwrap(), [1.0, 2.0, 3.0]);
}

#[test]
fn wrong_shapes_unknown_slots_and_doubled_names_are_refused() {
    let parameters = two();
    assert!(matches!(parameters.set(1, &tensor(&[1.0])), Err(Error::Shape(_))));
    assert!(matches!(parameters.value(2), Err(Error::Argument(_))));
    let doubled = vec![("a".to_owned(), vec![1]), ("a".to_owned(), vec![1])];
    assert!(matches!(Parameters::new(doubled, &Device::Cpu), Err(Error::Argument(_))));
}

#[test]
fn the_norm_has_the_same_bits_on_one_thread_and_on_two() {
    let count = 300_001;
    let parameters = Parameters::new(vec![("w".into(), vec![count])], &Device::Cpu).unwrap();
    let numbers = crate::random::Stream::new(1, "norm").normals(count);
    parameters.accumulate(0, &Tensor::from_vec(numbers, count, &Device::Cpu).unwrap()).unwrap();
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| parameters.gradient_norm().unwrap().to_bits())
    };
    assert_eq!(on(1), on(2));
}

/// Slots whose lengths are no multiples of eight, and one that is.
fn odd(device: &Device, activations: DType) -> Parameters {
    let list = [("a", vec![3, 5]), ("b", vec![7]), ("c", vec![2, 8]), ("d", vec![70_001])];
    let list = list.map(|(name, shape)| (name.to_owned(), shape)).to_vec();
    Parameters::new(list, device).unwrap().with_operand_copy(activations).unwrap()
}

fn single(tensor: Tensor) -> Tensor {
    Weight::from(tensor).to_tensor().unwrap().to_dtype(DType::F32).unwrap()
}

on_each_device! {
    /// The same passes on the CPU and here: every bit is the same, and gaps between slots show nowhere.
    fn slots_hold_what_the_cpu_holds(on) tolerance(0.0, 0.0) {
        let (here, there) = (odd(&on.device, on.dtype), odd(&Device::Cpu, DType::F32));
        assert_eq!((here.slots(), here.len()), (there.slots(), there.len()));
        for (index, slot) in there.slots().iter().enumerate() {
            let (value, more) = (normal(&slot.name, &slot.shape), normal("more", &slot.shape));
            let view = here.value(index).unwrap();
            for all in [&here, &there] {
                all.set(index, &value).unwrap();
                all.accumulate(index, &value).unwrap();
            }
            assert_eq!(bits(&single(view)), bits(&value));
            assert_eq!(bits(&here.value_on_cpu(index).unwrap()), bits(&value));
            // What a product of the device leaves may have 16 bits.
            here.accumulate(index, &on.place(&more)).unwrap();
            there.accumulate(index, &more.to_dtype(on.dtype).unwrap()).unwrap();
            let operand = here.operand(index).unwrap();
            assert_eq!(operand.dtype(), on.operands());
            assert_eq!(bits(&single(operand)), bits(&single(value.to_dtype(on.operands()).unwrap())));
        }
        assert_eq!(bits(&here.snapshot().unwrap()), bits(&there.snapshot().unwrap()));
        let gradients = |all: &Parameters| -> Vec<Vec<u32>> {
            (0..4).map(|index| bits(&single(all.gradient(index).unwrap()))).collect()
        };
        assert_eq!(gradients(&here), gradients(&there));
        let (found, wanted) = (here.gradient_norm().unwrap(), there.gradient_norm().unwrap());
        assert!((found / wanted - 1.0).abs() < 1e-12, "{found}, not {wanted}");
        here.clear_gradients().unwrap();
        assert_eq!(here.gradient_norm().unwrap(), 0.0);
    }

    /// In bf16 the numbers are rounded before; the tensor cores of GPUs cut off the last bits of sums.
    fn products_are_added_to_gradients(on) tolerance(2e-6, 2e-5) {
        let (parameters, tokens) = (odd(&on.device, on.dtype), 37);
        let (left, right) = (on.normal("left", &[tokens, 2]), on.normal("right", &[tokens, 8]));
        for _ in 0..2 {
            parameters.accumulate_product(2, 1.5, &left, &right).unwrap();
        }
        let product = on.leaf(&left).t().unwrap().matmul(on.leaf(&right).as_tensor()).unwrap();
        on.close("gradient", &parameters.gradient(2).unwrap(), &(product * 3.0).unwrap());
        let before = parameters.gradient_norm().unwrap();
        let none = [2, 8].map(|width| on.normal("none", &[0, width]));
        parameters.accumulate_product(2, 1.0, &none[0], &none[1]).unwrap();
        assert_eq!(parameters.gradient_norm().unwrap(), before, "no tokens");
        assert!(parameters.accumulate_product(1, 1.0, &none[0], &none[1]).is_err(), "another shape, no tokens");
        // Slots beside it stay as they are.
        parameters.accumulate(2, &single(parameters.gradient(2).unwrap()).neg().unwrap()).unwrap();
        assert!(before > 0.0 && parameters.gradient_norm().unwrap() == 0.0);
        assert!(parameters.accumulate_product(1, 1.0, &left, &right).is_err(), "another shape");
    }

    /// A copy is its own, and what is copied back shows in every view.
    fn copies_keep_their_values(on) tolerance(0.0, 0.0) {
        let all = odd(&on.device, on.dtype);
        let value = |name| normal(name, &[2, 8]);
        all.set(2, &value("one")).unwrap();
        let copy = all.detached_copy().unwrap();
        all.set(2, &value("other")).unwrap();
        assert_eq!(bits(&single(copy.value(2).unwrap())), bits(&value("one")));
        all.copy_from(&copy).unwrap();
        assert_eq!(bits(&all.snapshot().unwrap()), bits(&copy.snapshot().unwrap()));
        assert_eq!(bits(&single(all.operand(2).unwrap())), bits(&single(value("one").to_dtype(on.operands()).unwrap())));
    }
}
