use candle_core::{Device, Tensor};

use super::*;

#[test]
fn arguments_in_another_order_are_refused() {
    let build = Build::from(DType::F32);
    let [pointer, count, long] = [Argument::Nothing, Argument::Count(1), Argument::Long(1)];
    assert!(ADD.check(build, &[pointer, pointer, pointer, long]).is_ok());
    assert!(ADD.check(build, &[pointer, pointer, pointer, count]).is_err());
    assert!(ADD.check(build, &[pointer, pointer, long]).is_err());
    assert!(ADD.check(build, &[pointer, pointer, pointer, long, long]).is_err());
    assert!(ADD.check(build, &[pointer, pointer, long, pointer]).is_err());
}

#[test]
fn numbers_of_another_type_are_refused() {
    let of = |dtype| Tensor::zeros(4, dtype, &Device::Cpu).unwrap();
    let (single, brain) = (of(DType::F32), of(DType::BF16));
    let [single, brain] = [Argument::Tensor(&single), Argument::Tensor(&brain)];
    let sum = |act: DType, given| ADD.check(act.into(), &[given, given, given, Argument::Long(4)]);
    assert!(sum(DType::F32, single).is_ok() && sum(DType::BF16, brain).is_ok());
    assert!(sum(DType::F32, brain).is_err() && sum(DType::BF16, single).is_err());
    let sums = |parts: &Tensor| SQUARE_SUMS.check(DType::F32.into(), &[parts.into(), single, Argument::Long(4)]);
    let of = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, &Device::Cpu).unwrap();
    assert!(sums(&of(&[4], DType::F64)).is_ok() && sums(&of(&[4, 2], DType::F32)).is_ok());
    assert!(sums(&of(&[4], DType::F32)).is_err() && sums(&of(&[4, 2], DType::BF16)).is_err());
    let [count, nothing] = [Argument::Count(1), Argument::Nothing];
    let tensor_for_fault_word = [single, single, nothing, count, count, count, Argument::Number(1.0), single, count];
    let error = EMBED_F32.check(DType::F32.into(), &tensor_for_fault_word).unwrap_err().to_string();
    assert_eq!(
        error,
        "kernel `embed_f32` takes `afunnnxw`, it was given f32 [4], f32 [4], Nothing, Count(1), Count(1), Count(1), \
         Number(1.0), f32 [4], Count(1)"
    );
}
