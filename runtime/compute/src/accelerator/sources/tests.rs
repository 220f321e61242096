use std::collections::BTreeMap;

use super::*;
use crate::accelerator::kernel::ALL;

/// Kernels that only CUDA has, for its tensor cores. On Metal, the kernels `attention_plain…` use SIMD-group matrices.
const CUDA_ALONE: [&str; 3] = ["attention", "attention_dkv", "attention_dq"];

const LANGUAGES: [Language; 2] = [Language::Cuda, Language::Metal];

/// Names of all kernels that a source declares, directly or by a macro.
fn names(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in text.lines() {
        if let Some((_, rest)) = line.strip_prefix("KERNEL(").and_then(|rest| rest.split_once(") ")) {
            names.push(rest.split('(').next().unwrap().to_owned());
        } else if let Some((before, rest)) = line.split_once('(')
            && !before.is_empty()
            && before.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
        {
            names.push(rest.split([',', ')']).next().unwrap().to_owned());
        }
    }
    names
}

/// The letter for a parameter's declaration in [`Kernel::signature`](crate::accelerator::kernel::Kernel), or `?` for a
/// pointer whose element type a macro fills in. Panics, naming `kernel`, if the type is unknown.
fn letter(kernel: &str, parameter: &str) -> char {
    let parameter = trim_declaration(parameter);
    let words: Vec<&str> = parameter.split_whitespace().filter(|word| *word != "const").collect();
    match words[..] {
        ["FAULT_WORD", _] => 'w',
        ["GLOBAL", kind, name] if name.starts_with('*') => match kind {
            "act" => 'a',
            // A step's constants are eight of them.
            "float" | "Step" => 'f',
            "Double" => 'd',
            "bf16" => 'b',
            "f16" => 'h',
            "u32" | "TileEntry" | "Span" => 'u',
            "u8" => 'y',
            "u64" => 'w',
            // What a macro makes of it stands in the name.
            "To" | "From" | "T" => '?',
            other => panic!("`{kernel}` points to `{other}`, of which nothing is known here"),
        },
        ["NUMBER(u32)", _] => 'n',
        ["NUMBER(u64)", _] => 'l',
        ["NUMBER(float)", _] => 'x',
        _ => panic!("`{kernel}` takes `{parameter}`, of which nothing is known here"),
    }
}

/// Every kernel that a module declares, with the letters of its parameters.
fn declared(language: Language, module: Module) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for text in language.files(module) {
        for name in names(text) {
            let parameters = parameters_of(text, &name).unwrap_or_else(|| panic!("`{name}` has no parameters"));
            let letters = parameters.split(',').map(|one| letter(&name, one)).collect();
            assert!(found.insert(name.clone(), letters).is_none(), "`{name}` is there twice");
        }
    }
    found
}

#[test]
fn the_list_and_the_text_say_the_same_of_every_kernel() {
    for language in LANGUAGES {
        let mut found = 0;
        for module in Module::ALL {
            let declared = declared(language, module);
            let alone = |name: &str| language == Language::Metal && CUDA_ALONE.contains(&name);
            let listed = ALL.iter().filter(|kernel| kernel.module == module && !alone(kernel.name));
            let listed: BTreeMap<&str, &str> = listed.map(|kernel| (kernel.name, kernel.signature)).collect();
            assert!(
                declared.keys().map(String::as_str).eq(listed.keys().copied()),
                "{language:?} {module:?}: {declared:?} {listed:?}"
            );
            for (name, takes) in listed {
                let same = declared[name].chars().zip(takes.chars()).all(|(here, there)| here == there || here == '?');
                assert!(same && declared[name].len() == takes.len(), "`{name}`: {} for {takes}", declared[name]);
            }
            found += declared.len();
        }
        // A change of how kernels are declared must not leave nothing to compare.
        assert!(found > 60, "{language:?}: {found} kernels");
    }
}

#[test]
fn a_kernel_asks_by_its_number_whether_a_pointer_is_there() {
    let mut asked = 0;
    let texts = Module::ALL.map(|module| Language::Cuda.files(module));
    for part in texts.into_iter().flatten().flat_map(|text| text.split("KERNEL(").skip(1)) {
        let (parameters, body) = part.split_once(" WHERE)").unwrap();
        let parameters: Vec<&str> = parameters.split(',').collect();
        for question in body.split("THERE(").skip(1) {
            let (index, rest) = question.split_once(", ").unwrap();
            let name = rest.split(')').next().unwrap();
            let parameter = trim_declaration(parameters[index.parse::<usize>().unwrap()]);
            assert!(parameter.ends_with(&format!(" *{name}")), "THERE({index}, {name}) is about {parameter}");
            asked += 1;
        }
    }
    assert!(asked > 15, "{asked}");
}

#[test]
fn what_a_kernel_only_reads_is_known_by_its_name() {
    let reads = |module, kernel| Language::Metal.reads(module, kernel);
    assert_eq!(reads(Module::Step, "add"), Some(0b110));
    assert_eq!(reads(Module::Step, "add_bias"), Some(0b10));
    assert_eq!(reads(Module::Step, "bf16_to_f32"), Some(0b10));
    assert_eq!(reads(Module::Step, "scatter_rows"), Some(0b11110));
    assert_eq!(reads(Module::Step, "rope"), Some(0b11110));
    assert_eq!(reads(Module::Unpack, "unpack_q6_k"), Some(0b11_0000_0110));
    assert_eq!(reads(Module::Product, "product_of_few_f32"), Some(0b110));
    assert_eq!(reads(Module::Step, "attention"), None);
}

#[test]
fn a_text_begins_with_what_its_build_defines() {
    let text = |module, act, head, group| Language::Cuda.source(module, Build { act, head, group }).unwrap();
    assert!(text(Module::Step, DType::BF16, 0, 0).starts_with("#define ACTIVATION 1\n//"));
    let cached = text(Module::Cached, DType::F32, 128, 4);
    assert!(cached.starts_with("#define ACTIVATION 0\n#define HEAD_DIM 128\n#define GROUP 4\n//"));
    assert!(cached.contains(") attention_cached("));
    let metal = Language::Metal.source(Module::Attention, Build { act: DType::F16, head: 96, group: 0 }).unwrap();
    assert!(metal.starts_with("#define ACTIVATION 2\n#define HEAD_DIM 96\n//"), "{}", &metal[..80]);
    assert!(LANGUAGES.iter().all(|language| language.source(Module::Step, DType::I64.into()).is_err()));
}
