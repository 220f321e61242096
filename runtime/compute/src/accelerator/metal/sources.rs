//! The texts of kernels in Metal's language: which files make a library, what stands in front, what a kernel only reads.
//!
//! Compiled on every system for the tests: whether the list of kernels and these texts say the same is seen without a Mac.

use candle_core::DType;

use crate::accelerator::argument::Build;
use crate::accelerator::kernel::Module;
use crate::error::{Error, Result};

/// What stands before every text.
const SHARED: &str = include_str!("../kernels/metal/prelude.metal");
const PATHS: &str = include_str!("../kernels/metal/attention.metal");

/// Kernels that are compiled together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// A module of the list in `kernel.rs`.
    Listed(Module),
    /// Matrix products, which are not launched by name.
    Product,
}

impl Source {
    /// Its files.
    const fn files(self) -> &'static [&'static str] {
        match self {
            Self::Listed(Module::Attention) => &[PATHS, include_str!("../kernels/metal/attention_plain.metal")],
            Self::Listed(Module::Cached) => &[PATHS, include_str!("../kernels/metal/attention_cached.metal")],
            Self::Listed(Module::Chance) => &[include_str!("../kernels/metal/chance.metal")],
            Self::Listed(Module::Step) => &[
                include_str!("../kernels/metal/elementwise.metal"),
                include_str!("../kernels/metal/norm.metal"),
                include_str!("../kernels/metal/rope.metal"),
                include_str!("../kernels/metal/embedding.metal"),
                include_str!("../kernels/metal/optimizer.metal"),
                include_str!("../kernels/metal/head.metal"),
                include_str!("../kernels/metal/patches.metal"),
            ],
            Self::Listed(Module::Unpack) => {
                &[include_str!("../kernels/unpack_formats.h"), include_str!("../kernels/metal/unpack.metal")]
            }
            Self::Product => &[include_str!("../kernels/metal/product.metal")],
        }
    }

    /// The text of its library: what it is compiled for, then the files.
    ///
    /// # Errors
    /// [`Error::Dtype`] for activations that no kernel has.
    pub(super) fn library(self, build: Build) -> Result<String> {
        let activation = match build.act {
            DType::F32 => 0,
            DType::BF16 => 1,
            DType::F16 => 2,
            other => return Err(Error::dtype(format!("activations in `{}` have no kernels", other.as_str()))),
        };
        let defines = [("ACTIVATION", Some(activation)), ("HEAD_DIM", some(build.head)), ("GROUP", some(build.group))];
        let defines = defines.iter().filter_map(|(name, value)| Some(format!("#define {name} {}\n", (*value)?)));
        let mut text: String = defines.collect();
        for part in std::iter::once(&SHARED).chain(self.files()) {
            text.extend([*part, "\n"]);
        }
        Ok(text)
    }

    /// A bit for each argument of a kernel through which nothing is written; none if there is no such kernel.
    pub(super) fn reads(self, kernel: &str) -> Option<u32> {
        let parameters = self.files().iter().find_map(|text| parameters_of(text, kernel))?;
        let read = parameters.split(',').enumerate().filter(|(_, one)| bare(one).starts_with("device const "));
        Some(read.fold(0, |bits, (index, _)| bits | 1 << index))
    }
}

/// The value of a define; none for 0, which leaves it out.
fn some(number: u32) -> Option<u32> {
    (number > 0).then_some(number)
}

/// A parameter without the ends of lines around it.
fn bare(parameter: &str) -> &str {
    parameter.trim_matches(|letter: char| letter.is_whitespace() || letter == '\\')
}

/// The parameters of a kernel as they are declared, by itself or by a macro whose first argument is its name.
fn parameters_of<'a>(text: &'a str, kernel: &str) -> Option<&'a str> {
    let by_macro = text.lines().find_map(|line| {
        let (name, arguments) = line.split_once('(')?;
        (arguments.split([',', ')']).next() == Some(kernel)).then_some(name)
    });
    let text = match by_macro.map(|name| format!("#define {name}(")) {
        Some(start) => &text[text.find(&start)?..],
        None => text,
    };
    let declared = if by_macro.is_some() { "name" } else { kernel };
    text.split("KERNEL(").skip(1).find_map(|part| {
        let (_, part) = part.split_once(") ")?;
        let (name, rest) = part.split_once('(')?;
        if name != declared {
            return None;
        }
        Some(rest.split_once(" WHERE)")?.0)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::accelerator::kernel::ALL;

    /// Kernels for tensor cores as CUDA has them; Metal's plain ones are on the matrices of SIMD groups already.
    const CUDA_ALONE: [&str; 3] = ["attention", "attention_dkv", "attention_dq"];

    /// Names of all kernels that a text declares, by themselves and by macros.
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

    /// The letter of a parameter as in the list of kernels; its place must be `index`.
    fn letter(kernel: &str, index: usize, parameter: &str) -> char {
        let parameter = bare(parameter);
        let (declared, place) = parameter.split_once(" [[").unwrap_or_else(|| panic!("`{kernel}`: `{parameter}`"));
        assert_eq!(place, format!("buffer({index})]]"), "`{kernel}` has `{parameter}` out of order");
        let words: Vec<&str> = declared.split_whitespace().filter(|word| *word != "const").collect();
        match words[..] {
            ["FAULT_WORD", _] => 'w',
            ["device", kind, name] if name.starts_with('*') => match kind {
                "act" => 'a',
                "float" | "Step" => 'f',
                "Pair" => 'd',
                "bf16" => 'b',
                "f16" => 'h',
                "u32" | "TileEntry" | "Span" => 'u',
                "u8" => 'y',
                "u64" => 'w',
                // What a macro makes of it stands in the name.
                "To" | "From" | "T" => '?',
                other => panic!("`{kernel}` points to `{other}`, of which nothing is known here"),
            },
            ["constant", "u32", _] => 'n',
            ["constant", "u64", _] => 'l',
            ["constant", "float", _] => 'x',
            _ => panic!("`{kernel}` takes `{parameter}`, of which nothing is known here"),
        }
    }

    fn declared(source: Source) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for text in source.files() {
            for name in names(text) {
                let parameters = parameters_of(text, &name).unwrap_or_else(|| panic!("`{name}` has no parameters"));
                let letters = parameters.split(',').enumerate().map(|(index, one)| letter(&name, index, one)).collect();
                assert!(found.insert(name.clone(), letters).is_none(), "`{name}` is there twice");
            }
        }
        found
    }

    #[test]
    fn the_list_and_the_text_say_the_same_of_every_kernel() {
        for text in Module::ALL {
            let declared = declared(Source::Listed(text));
            let listed: BTreeMap<&str, &str> = ALL
                .iter()
                .filter(|kernel| kernel.module == text && !CUDA_ALONE.contains(&kernel.name))
                .map(|kernel| (kernel.name, kernel.signature))
                .collect();
            assert!(
                declared.keys().map(String::as_str).eq(listed.keys().copied()),
                "{text:?}: {declared:?} {listed:?}"
            );
            for (name, takes) in listed {
                let same = declared[name].chars().zip(takes.chars()).all(|(here, there)| here == there || here == '?');
                assert!(same && declared[name].len() == takes.len(), "`{name}`: {} for {takes}", declared[name]);
            }
        }
    }

    #[test]
    fn a_kernel_asks_by_its_number_whether_a_pointer_is_there() {
        let mut asked = 0;
        for source in Module::ALL.map(Source::Listed) {
            for text in source.files() {
                for part in text.split("KERNEL(").skip(1) {
                    let (parameters, body) = part.split_once(" WHERE)").unwrap();
                    let parameters: Vec<&str> = parameters.split(',').collect();
                    for question in body.split("THERE(").skip(1) {
                        let (index, rest) = question.split_once(", ").unwrap();
                        let name = rest.split(')').next().unwrap();
                        let parameter = parameters[index.parse::<usize>().unwrap()];
                        assert!(
                            parameter.contains(&format!("*{name} [[")),
                            "THERE({index}, {name}) is about {parameter}"
                        );
                        asked += 1;
                    }
                }
            }
        }
        assert!(asked > 15, "{asked}");
    }

    #[test]
    fn what_a_kernel_only_reads_is_known_by_its_name() {
        let step = Source::Listed(Module::Step);
        assert_eq!(step.reads("add"), Some(0b110));
        assert_eq!(step.reads("add_bias"), Some(0b10));
        assert_eq!(step.reads("bf16_to_f32"), Some(0b10));
        assert_eq!(step.reads("scatter_rows"), Some(0b11110));
        assert_eq!(step.reads("rope"), Some(0b11110));
        assert_eq!(Source::Listed(Module::Unpack).reads("unpack_q6_k"), Some(0b11_0000_0110));
        assert_eq!(Source::Product.reads("product_of_few_f32"), Some(0b110));
        assert_eq!(step.reads("attention"), None);
    }

    #[test]
    fn a_library_says_what_it_is_compiled_for_before_anything_else() {
        let build = Build { act: DType::F16, head: 96, group: 0 };
        let text = Source::Listed(Module::Attention).library(build).unwrap();
        assert!(text.starts_with("#define ACTIVATION 2\n#define HEAD_DIM 96\n//"), "{}", &text[..80]);
        assert!(Source::Product.library(DType::F64.into()).is_err());
    }
}
