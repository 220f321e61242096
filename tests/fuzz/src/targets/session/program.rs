//! Programs for the guest, generated from the bytes of an input: calls with arguments of the right types.

use arbitrary::{Result, Unstructured};
use tunebox_sandbox::Value;
use wit_parser::{Type, TypeDefKind};

use super::contract::{Contract, Parameter};

/// Where the program lies in the guest's memory.
const ADDRESS: usize = 73_728;
/// Bytes of the longest program, with its lists and texts.
const LONGEST: usize = 48 << 10;
/// The most calls between two ends.
const CALLS: usize = 40;

/// Ends a call of the guest.
const END: u16 = 0xfff0;
/// Drops every handle.
const DROP_ALL: u16 = 0xfff3;
/// Makes the calls that follow again.
const REPEAT: u16 = 0xfff4;

/// Calls that belong together: each uses the handle that the call before returned.
const PHRASES: [&[&str]; 28] = [
    &[
        "data/[method]batch.rows",
        "model/score-for-learning",
        "model/[method]scores.logprob",
        "tensor/[method]tensor.sum",
        "learn/backward",
    ],
    &[
        "model/score-for-learning",
        "model/[method]scores.entropy",
        "tensor/[method]tensor.exp",
        "tensor/[method]tensor.mean",
        "learn/backward",
        "learn/update",
    ],
    &["learn/update"],
    &["model/[method]scores.logprob", "learn/backward-from", "learn/update"],
    &["model/policy", "model/score", "model/[method]scores.logprob", "learn/backward-from"],
    &["model/reference", "model/score", "model/[method]scores.logprob"],
    &["model/snapshot", "model/score", "model/[method]scores.top-one"],
    &["data/[method]batch.rows", "data/[method]rows.mask", "data/[method]rows.whole", "data/[method]rows.select"],
    &["model/policy", "sample/[constructor]sampler", "sample/[method]sampler.completions", "sample/generate"],
    &["reward/judge", "sample/[method]completions.rows", "sample/[method]completions.logprob", "tensor/multiply"],
    &["tensor/full", "patch/add", "model/score-for-learning", "patch/[resource-drop]patch"],
    &["tensor/randn", "patch/ablate", "hidden/capture", "tensor/[method]tensor.reshape", "patch/project"],
    &["tensor/full", "tensor/randn", "weights/add-outer", "model/divergence"],
    &["tensor/ones", "weights/project-out", "weights/read-rows", "model/next-token"],
    &["tensor/[constructor]scope", "tensor/add", "tensor/[method]scope.keep", "tensor/[resource-drop]scope"],
    &["tensor/[method]tensor.sum", "run/metric-of", "run/add-metric-of", "hidden/publish"],
    &["model/[constructor]taps", "model/[method]taps.entropy", "model/score-for-learning"],
    &[
        "optimizer/all",
        "optimizer/[method]parameter.gradient",
        "tensor/[method]tensor.scale",
        "optimizer/[method]parameter.subtract",
        "optimizer/done",
    ],
    &["optimizer/parameters", "optimizer/[method]parameter.value", "optimizer/[method]parameter.assign"],
    &["optimizer/[method]parameter.state", "tensor/[method]tensor.exp", "optimizer/[method]parameter.set-state"],
    &[
        "optimizer/perturb",
        "model/policy",
        "model/score",
        "optimizer/[resource-drop]perturbation",
        "optimizer/add-noise",
    ],
    &[
        "tensor/ones",
        "optimizer/extra",
        "optimizer/[method]parameter.value",
        "tensor/[method]tensor.square",
        "tensor/[method]tensor.sum",
        "learn/backward",
        "optimizer/[method]parameter.gradient",
    ],
    &[
        "data/[method]batch.rows",
        "hidden/capture-for-learning",
        "tensor/[method]tensor.square",
        "tensor/[method]tensor.sum",
        "learn/backward",
        "learn/update",
    ],
    &["hidden/capture-for-learning", "model/score-for-learning", "tensor/[method]tensor.sum", "learn/backward"],
    &["teacher/open", "hidden/capture", "tensor/[method]tensor.square", "tensor/[method]tensor.sum"],
    &["teacher/open", "model/[constructor]taps", "model/[method]taps.divergence", "model/score-for-learning"],
    &["data/[method]rows.ids", "data/[method]rows.presence", "data/make-rows", "model/score-for-learning"],
    &[
        "sample/[constructor]sampler",
        "sample/[method]sampler.stop",
        "sample/[method]sampler.allow-tokens",
        "sample/generate",
    ],
];

/// Texts: names that the run has, and others.
pub(super) const WORDS: [&str; 10] =
    ["chosen", "loss", "rejected", "label", "prompt", "one", "two", "", "Größe\u{202e}", "absent"];
const NUMBERS: [f64; 12] =
    [1.0, 0.5, 0.0, -1.0, 2.0, 1e-3, 100.0, -0.0, 1e30, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
const EDGES: [u32; 8] = [63, 64, 1_023, 1_025, 65_536, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];

/// Generates a program.
pub(super) struct Writer<'a, 'input> {
    contract: &'a Contract,
    bytes: &'a mut Unstructured<'input>,
    /// Lists and texts.
    pool: Vec<u8>,
    code: Vec<u8>,
    /// The names of the calls, and operations in hexadecimal, for people.
    pub(super) listing: Vec<String>,
}

impl<'a, 'input> Writer<'a, 'input> {
    /// Begins an empty program. Its choices are read from `bytes`.
    pub(super) fn new(contract: &'a Contract, bytes: &'a mut Unstructured<'input>) -> Self {
        Self { contract, bytes, pool: Vec::new(), code: Vec::new(), listing: Vec::new() }
    }

    /// Encodes the program as settings for `init`.
    pub(super) fn settings(mut self) -> Vec<(String, Value)> {
        self.pool.resize(self.pool.len().next_multiple_of(8), 0);
        let (begin, end) = (self.pool.len(), self.pool.len() + self.code.len());
        self.pool.extend(self.code);
        self.pool.resize(self.pool.len().next_multiple_of(8), 0);
        let integer = |bytes: &[u8; 8]| (String::new(), Value::Integer(i64::from_le_bytes(*bytes)));
        let head = (begin as u64 | (end as u64) << 32).to_le_bytes();
        std::iter::once(&head).chain(self.pool.as_chunks().0).map(integer).collect()
    }

    /// Writes what the guest does in one call, unless it ends the call before.
    pub(super) fn write_part(&mut self) -> Result<()> {
        for _ in 0..self.bytes.int_in_range(1..=CALLS)? {
            if self.bytes.is_empty() || self.pool.len() + self.code.len() > LONGEST {
                break;
            }
            self.write_piece()?;
        }
        self.push_operation(END);
        Ok(())
    }

    fn push_operation(&mut self, operation: u16) {
        if operation >= END {
            self.listing.push(format!("{operation:x}"));
        }
        self.code.extend(operation.to_le_bytes());
    }

    /// Writes a phrase, a single call, a repetition, or an early end of the call of the guest.
    fn write_piece(&mut self) -> Result<()> {
        match self.bytes.arbitrary::<u8>()? {
            0..130 => {
                let phrase = PHRASES[self.bytes.choose_index(PHRASES.len())?];
                phrase.iter().try_for_each(|name| self.write_call(self.contract.number(name), true))
            }
            130..246 => {
                let number = self.bytes.choose_index(self.contract.imports.len())?;
                let plain = self.bytes.arbitrary()?;
                self.write_call(number, plain)
            }
            246..251 => self.write_repeat(),
            251 => self.write_either(END, 0xfff1),
            252 => self.write_either(END, 0xfff2),
            253 => self.write_either(END, 0xfff5),
            _ => self.write_either(DROP_ALL, END),
        }
    }

    /// Writes `rare` in one of eight cases, else `usual`.
    fn write_either(&mut self, usual: u16, rare: u16) -> Result<()> {
        let operation = if self.bytes.ratio(1, 8)? { rare } else { usual };
        self.push_operation(operation);
        Ok(())
    }

    /// Writes one to three calls that the guest makes up to 1,500 times more.
    fn write_repeat(&mut self) -> Result<()> {
        let times = match self.bytes.int_in_range(0..=15)? {
            15 => 1_500,
            12..=14 => 300,
            few => few,
        };
        self.push_operation(REPEAT);
        let at = self.code.len();
        self.code.extend([0; 8]);
        for _ in 0..self.bytes.int_in_range(1..=3)? {
            let number = self.bytes.choose_index(self.contract.imports.len())?;
            self.write_call(number, true)?;
        }
        let length = (self.code.len() - at - 8) as u64;
        self.code[at..at + 8].copy_from_slice(&(times as u64 | length << 32).to_le_bytes());
        Ok(())
    }

    /// Writes one call. With `plain`, its arguments are likely to be valid; else about half of them.
    fn write_call(&mut self, number: usize, plain: bool) -> Result<()> {
        let mut arguments = Vec::new();
        for (name, parameter) in &self.contract.imports[number].parameters {
            let plain = plain || self.bytes.arbitrary()?;
            match *parameter {
                Parameter::Plain(ty) => self.push_value(ty, name, plain, &mut arguments)?,
                Parameter::Borrowed(_) | Parameter::Taken(_) => arguments.push(self.read_handle(plain)?),
                Parameter::Perhaps(_) => {
                    arguments.extend([u64::from(self.bytes.arbitrary::<bool>()?), self.read_handle(plain)?])
                }
                Parameter::Several(_) => {
                    let count = if plain { 2 } else { self.bytes.int_in_range(0..=5)? };
                    let handles = (0..count).map(|_| self.read_handle(plain)).collect::<Result<Vec<_>>>()?;
                    self.push_numbers(&handles, &mut arguments);
                }
            }
        }
        self.listing.push(self.contract.imports[number].name.clone());
        self.push_operation(number as u16);
        arguments.iter().for_each(|argument| self.code.extend(argument.to_le_bytes()));
        Ok(())
    }

    /// Chooses a handle by its age: 0 is the newest. Rarely a number that is no handle, unless `plain`.
    fn read_handle(&mut self, plain: bool) -> Result<u64> {
        let choice: u8 = self.bytes.arbitrary()?;
        Ok(match choice {
            255 if !plain => 0xffff_0000 | u64::from(self.bytes.arbitrary::<u16>()?),
            200.. if !plain => u64::from(self.bytes.arbitrary::<u8>()?),
            _ => u64::from(choice % if plain { 2 } else { 6 }),
        })
    }

    /// Adds a list or text to the pool, and its address and length to the arguments.
    fn push_list(&mut self, items: &[u8], count: usize, arguments: &mut Vec<u64>) {
        self.pool.resize(self.pool.len().next_multiple_of(4), 0);
        arguments.extend([(ADDRESS + self.pool.len()) as u64, count as u64]);
        self.pool.extend(items);
    }

    /// Adds a list of 4-byte items.
    fn push_numbers(&mut self, items: &[u64], arguments: &mut Vec<u64>) {
        let bytes: Vec<u8> = items.iter().flat_map(|item| (*item as u32).to_le_bytes()).collect();
        self.push_list(&bytes, items.len(), arguments);
    }

    /// Adds an argument of a type without handles.
    fn push_value(&mut self, ty: Type, name: &str, plain: bool, arguments: &mut Vec<u64>) -> Result<()> {
        match ty {
            Type::Bool => arguments.push(u64::from(self.bytes.arbitrary::<bool>()?)),
            Type::F32 => arguments.push(u64::from((self.read_float(plain)? as f32).to_bits())),
            Type::F64 => arguments.push(self.read_float(plain)?.to_bits()),
            Type::S32 => {
                arguments.push(u64::from(if plain { 0 } else { i32::from(self.bytes.arbitrary::<i8>()? % 4) } as u32))
            }
            Type::String => {
                let words = if plain { 2 } else { WORDS.len() };
                let word = match name {
                    "side" => WORDS[0],
                    "name" if plain => WORDS[1],
                    _ => WORDS[self.bytes.choose_index(words)?],
                };
                self.push_list(word.as_bytes(), word.len(), arguments);
            }
            Type::Id(_) => self.push_composed(ty, name, plain, arguments)?,
            _ => arguments.push(u64::from(self.read_integer(plain)?)),
        }
        Ok(())
    }

    /// Adds an argument of a type that WIT defines: an enum, a variant, an option or a list.
    fn push_composed(&mut self, ty: Type, name: &str, plain: bool, arguments: &mut Vec<u64>) -> Result<()> {
        match self.contract.definition(ty) {
            Some(TypeDefKind::Enum(cases)) => {
                // `f32`.
                let case = if name == "dtype" && plain { 5 } else { self.bytes.choose_index(cases.cases.len())? };
                arguments.push(case as u64);
            }
            Some(TypeDefKind::Variant(variant)) => {
                let further = variant.cases.len() - 1;
                let case = if self.bytes.ratio(1, 4)? { 1 + self.bytes.choose_index(further)? } else { 0 };
                arguments.extend([case as u64, u64::from(self.read_integer(plain)? % 4)]);
            }
            Some(TypeDefKind::Option(inner)) => {
                arguments.push(u64::from(self.bytes.ratio(1, 4)?));
                self.push_value(*inner, name, plain, arguments)?;
            }
            Some(TypeDefKind::List(inner)) => {
                let (inner, mut items) = (*inner, Vec::new());
                let count = match (name, plain) {
                    ("shape" | "layers", true) => 1,
                    ("values", true) => 8,
                    _ => self.bytes.int_in_range(0..=4)?,
                };
                for _ in 0..count {
                    match name {
                        "shape" if plain => items.push(8),
                        "shape" => items.push(self.bytes.int_in_range(0..=9)?),
                        _ => self.push_value(inner, name, plain, &mut items)?,
                    }
                }
                self.push_numbers(&items, arguments);
            }
            other => panic!("a program cannot hold {other:?}"),
        }
        Ok(())
    }

    /// Chooses an unsigned integer: 1 if `plain`, else mostly below 9.
    fn read_integer(&mut self, plain: bool) -> Result<u32> {
        let choice: u8 = self.bytes.arbitrary()?;
        Ok(match choice {
            _ if plain => 1,
            240.. => EDGES[usize::from(choice) % EDGES.len()],
            200..240 => u32::from(self.bytes.arbitrary::<u8>()?),
            _ => u32::from(choice % 9),
        })
    }

    /// Chooses a number: 1 or 0.5 if `plain`.
    fn read_float(&mut self, plain: bool) -> Result<f64> {
        Ok(NUMBERS[self.bytes.choose_index(if plain { 2 } else { NUMBERS.len() })?])
    }
}
