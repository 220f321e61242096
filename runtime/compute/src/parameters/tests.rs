//! Views, copies and sums over the flat buffers.

use super::*;

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
