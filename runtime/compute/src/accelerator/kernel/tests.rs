use std::collections::BTreeMap;

use candle_core::{Device, Tensor};

use super::*;
use crate::accelerator::sources;

/// Every kernel of a text with the letters of its parameters. `UNPACK(name, …)` makes one for each name.
fn declared(text: &str) -> BTreeMap<String, String> {
    let made: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("UNPACK(")?.split(',').next()).collect();
    let mut found = BTreeMap::new();
    for part in text.split("KERNEL ").skip(1) {
        let Some((_, part)) = part.split_once("void ") else { continue };
        let (name, rest) = part.split_once('(').unwrap();
        let (parameters, _) = rest.split_once(')').unwrap();
        let parameters = parameters.replace('\\', " ");
        let letters: String = parameters.split(',').map(|parameter| letter(name, parameter.trim())).collect();
        match name.split_once("##name") {
            Some((before, after)) => {
                found.extend(made.iter().map(|format| (format!("{before}{format}{after}"), letters.clone())));
            }
            None => drop(found.insert(name.to_owned(), letters)),
        }
    }
    found
}

fn letter(kernel: &str, parameter: &str) -> char {
    let parameter = parameter.trim_start_matches("const ");
    let unknown = || panic!("`{kernel}` takes `{parameter}`, of which nothing is known here");
    match parameter.split_once('*') {
        Some((kind, _)) => match kind.trim() {
            "act" => 'a',
            // A step's constants are eight of them.
            "float" | "Step" => 'f',
            "double" => 'd',
            "bf16" => 'b',
            "f16" => 'h',
            "u32" | "TileEntry" | "Span" => 'u',
            "u8" => 'y',
            "u64" => 'w',
            _ => unknown(),
        },
        None => match parameter.split(' ').next() {
            Some("u32") => 'n',
            Some("u64") => 'l',
            Some("float") => 'x',
            _ => unknown(),
        },
    }
}

#[test]
fn the_list_and_the_text_say_the_same_of_every_kernel() {
    for text in Module::ALL {
        let declared: BTreeMap<String, String> = sources::cuda(text).iter().flat_map(|part| declared(part)).collect();
        let listed = ALL.iter().filter(|kernel| kernel.module == text);
        let listed: BTreeMap<String, String> =
            listed.map(|kernel| (kernel.name.to_owned(), kernel.signature.to_owned())).collect();
        assert_eq!(declared, listed, "{text:?} in CUDA");
    }
}

#[test]
fn every_declaration_is_found() {
    // A change of how kernels are declared must not make the other test say nothing.
    let found: usize = Module::ALL.iter().flat_map(|text| sources::cuda(*text)).map(|part| declared(part).len()).sum();
    assert_eq!(found, ALL.len());
    assert!(found > 60, "{found} kernels");
}

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
        "kernel `embed_f32` takes `afunnnxwn`, it was given f32 [4], f32 [4], Nothing, Count(1), Count(1), Count(1), \
         Number(1.0), f32 [4], Count(1)"
    );
}
