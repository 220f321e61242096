//! A tensor as `{:?}` shows it: its shape, and its numbers where they are few.

use std::fmt;

use super::Tensor;

/// The most numbers that are shown. They are read back from the device, and counted as such.
const MOST: u64 = 64;

/// Component and native twin show a tensor alike, because a method may log it.
impl fmt::Debug for Tensor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = self.shape();
        let count: u64 = shape.iter().map(|length| u64::from(*length)).product();
        let numbers = if count <= MOST { self.copy_to_list().ok() } else { None };
        let mut tensor = formatter.debug_tuple("Tensor");
        tensor.field(&shape);
        match &numbers {
            Some(numbers) => tensor.field(numbers),
            None => tensor.field(&format_args!("…")),
        };
        tensor.finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::native::tests::{Script, beside};
    use crate::native::{Connected, Role};
    use crate::tensor::{Dtype, zeros};

    #[test]
    fn a_tensor_is_shown_with_its_shape_and_with_its_numbers_where_they_are_few() {
        let script = |host: &mut Script| {
            host.asked("tensor/zeros", &(vec![2_u32, 1], 5_u8), &Ok::<u32, ()>(6));
            host.asked("tensor/[method]tensor.shape", &6_u32, &vec![2_u32, 1]);
            host.asked("tensor/[method]tensor.copy-to-list", &6_u32, &Ok::<Vec<f32>, ()>(vec![0.5, -1.0]));
            host.asked("tensor/[method]tensor.shape", &6_u32, &vec![8_u32, 9]);
            host.asked("tensor/[resource-drop]tensor", &6_u32, &());
        };
        let shown = beside(script, |stream| {
            let _connected = Connected::new(stream, Role::Bench).unwrap();
            let tensor = zeros(&[2, 1], Dtype::F32);
            (format!("{tensor:?}"), format!("{tensor:?}"))
        });
        assert_eq!(shown, ("Tensor([2, 1], [0.5, -1.0])".to_owned(), "Tensor([8, 9], …)".to_owned()));
    }
}
