//! Changes of activations against plain operations in f64.

use candle_core::Device;

use super::super::reference::{gradients, normal};
use super::*;
use crate::error::Error;
use crate::parity::{TestDevice, on_each_device};

const TOKENS: usize = 5;

/// Returns a direction of length 1, `[1, width]` f32, on the device of a test.
fn direction(on: &TestDevice, width: usize) -> Tensor {
    let row = normal("direction", &[1, width]);
    let length = row.sqr().unwrap().sum_all().unwrap().sqrt().unwrap();
    on.put(&row.broadcast_div(&length).unwrap())
}

// In bf16 a result is rounded once, by 2⁻⁸ of itself at most.
on_each_device! {
    fn a_vector_is_added_to_every_row_or_to_those_with_a_mark(on) tolerance(2e-7, 4e-3) {
        for width in [37, 48] {
            let (rows, vector) = (on.normal("rows", &[TOKENS, width]), on.single("vector", &[1, width]));
            let marks = Tensor::from_vec(vec![1f32, 0.0, 0.0, 1.0, 1.0], (TOKENS, 1), &Device::Cpu).unwrap();
            let marks = on.put(&marks);
            let (rows64, vector64) = (on.leaf(&rows), on.leaf(&vector));
            let every = rows64.broadcast_add(&vector64).unwrap();
            on.close("every row", &add_vector(&rows, &vector, None).unwrap(), &every);
            let some = (rows64.as_tensor() + on.leaf(&marks).matmul(&vector64).unwrap()).unwrap();
            on.close("some rows", &add_vector(&rows, &vector, Some(&marks)).unwrap(), &some);
        }
    }

    fn a_direction_is_removed_or_set_and_the_gradient_of_both_is_the_removal(on) tolerance(1e-6, 4e-3) {
        for width in [37, 48] {
            let (rows, seed) = (on.normal("rows", &[TOKENS, width]), on.normal("seed", &[TOKENS, width]));
            let direction = direction(on, width);
            let (rows64, direction64) = (on.leaf(&rows), on.leaf(&direction));
            let along = rows64.matmul(&direction64.t().unwrap()).unwrap();
            let removed = (rows64.as_tensor() - along.matmul(&direction64).unwrap()).unwrap();
            on.close("removed", &remove_component(&rows, &direction).unwrap(), &removed);
            let set = removed.broadcast_add(&(direction64.as_tensor() * 1.75).unwrap()).unwrap();
            on.close("set", &set_component(&rows, &direction, 1.75).unwrap(), &set);
            let reference = gradients(&set, &on.leaf(&seed), &[&rows64]);
            on.close("gradient", &remove_component(&seed, &direction).unwrap(), &reference[0]);
        }
    }

    fn rows_that_were_patched_are_left_as_they_were(on) tolerance(0.0, 0.0) {
        let rows = on.normal("rows", &[TOKENS, 16]);
        let before = on.leaf(&rows);
        add_vector(&rows, &on.single("vector", &[1, 16]), None).unwrap();
        remove_component(&rows, &direction(on, 16)).unwrap();
        on.close("rows", &rows, &before);
    }

    fn vectors_and_marks_of_another_shape_are_refused(on) tolerance(0.0, 0.0) {
        let (rows, vector) = (on.normal("rows", &[TOKENS, 16]), on.single("vector", &[1, 15]));
        assert!(matches!(add_vector(&rows, &vector, None), Err(Error::Shape(_))));
        assert!(matches!(remove_component(&rows, &vector), Err(Error::Shape(_))));
        let (vector, marks) = (on.single("vector", &[1, 16]), on.single("marks", &[TOKENS + 1, 1]));
        assert!(matches!(add_vector(&rows, &vector, Some(&marks)), Err(Error::Shape(_))));
    }
}
