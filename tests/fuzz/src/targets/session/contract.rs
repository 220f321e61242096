//! The functions of the contract, read from `wit/`, and a guest that can call each of them.
//!
//! The guest is an interpreter, so that nothing is compiled for an input. It holds a table of handles of each kind; an
//! argument that is a handle is the number of one of them.

use std::fmt::Write as _;
use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{Function, Handle, Resolve, Type, TypeDefKind, TypeId, WorldItem};

/// Where the arguments of a call lie, 8 bytes each.
const ARGUMENTS: usize = 256;

/// A function that a method may import.
pub(super) struct Import {
    /// Interface and function, as in `tensor/[method]tensor.exp`.
    pub(super) name: String,
    /// Names and types of the parameters.
    pub(super) parameters: Vec<(String, Parameter)>,
    module: String,
    key: String,
    /// The types of the arguments, and perhaps of the pointer to the answer, in WebAssembly.
    flat: Vec<WasmType>,
    result: Option<WasmType>,
    /// Whether the answer is written to memory.
    indirect: bool,
    answer: Answer,
}

/// How an argument is given.
#[derive(Clone, Copy)]
pub(super) enum Parameter {
    /// As the type says, without handles.
    Plain(Type),
    /// A handle of this kind.
    Borrowed(usize),
    /// A handle of this kind, which the host keeps.
    Taken(usize),
    /// A handle of this kind or none.
    Perhaps(usize),
    /// A list of handles of this kind.
    Several(usize),
}

/// What the guest reads of a result.
enum Answer {
    Nothing,
    /// Whether it is an error.
    Outcome,
    /// A handle of this kind, perhaps behind an outcome.
    Handle(usize),
    /// A list of handles of this kind behind an outcome.
    Handles(usize),
}

/// The contract with the functions in the order of their numbers.
pub(super) struct Contract {
    pub(super) resolve: Resolve,
    pub(super) imports: Vec<Import>,
    /// The resources, by kind of handle.
    kinds: Vec<TypeId>,
}

impl Contract {
    /// Reads `wit/`.
    pub(super) fn read() -> Self {
        let mut resolve = Resolve::default();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit");
        let (package, _) = resolve.push_dir(Path::new(folder)).expect("`wit/` is there");
        let world = resolve.select_world(&[package], Some("method")).expect("methods have a world");
        let kinds = resolve.types.iter().filter(|(_, found)| matches!(found.kind, TypeDefKind::Resource));
        let mut contract = Self { kinds: kinds.map(|(id, _)| id).collect(), imports: Vec::new(), resolve };
        let mut imports = Vec::new();
        for item in contract.resolve.worlds[world].imports.values() {
            let WorldItem::Interface { id, .. } = item else { panic!("a world imports interfaces only") };
            let name = contract.resolve.interfaces[*id].name.clone().unwrap_or_default();
            let module = contract.resolve.id_of(*id).unwrap_or_default();
            let functions = contract.resolve.interfaces[*id].functions.values();
            imports.extend(functions.map(|function| contract.import(&name, &module, function)));
            for id in contract.resolve.interfaces[*id].types.values() {
                imports.extend(contract.kind(*id).map(|kind| contract.drop_import(&name, &module, kind)));
            }
        }
        contract.imports = imports;
        contract
    }

    /// Returns the number of a function.
    pub(super) fn number(&self, name: &str) -> usize {
        self.imports.iter().position(|import| import.name == name).unwrap_or_else(|| panic!("`{name}` is no function"))
    }

    /// Returns the kind of handle of a resource; `None` for other types.
    fn kind(&self, id: TypeId) -> Option<usize> {
        self.kinds.iter().position(|kind| *kind == id)
    }

    /// Builds the entry of a function.
    fn import(&self, interface: &str, module: &str, function: &Function) -> Import {
        let signature = self.resolve.wasm_signature(AbiVariant::GuestImport, function);
        let parameters = function.params.iter().map(|param| (param.name.clone(), self.parameter(param.ty)));
        Import {
            name: format!("{interface}/{}", function.name),
            parameters: parameters.collect(),
            module: module.to_owned(),
            key: function.name.clone(),
            flat: signature.params,
            result: signature.results.first().copied(),
            indirect: signature.retptr,
            answer: function.result.map_or(Answer::Nothing, |result| self.answer(result)),
        }
    }

    /// Builds the entry of the import that drops handles of a kind.
    fn drop_import(&self, interface: &str, module: &str, kind: usize) -> Import {
        let key =
            format!("[resource-drop]{}", self.resolve.types[self.kinds[kind]].name.as_deref().unwrap_or_default());
        Import {
            name: format!("{interface}/{key}"),
            parameters: vec![("this".into(), Parameter::Taken(kind))],
            module: module.to_owned(),
            key,
            flat: vec![WasmType::I32],
            result: None,
            indirect: false,
            answer: Answer::Nothing,
        }
    }

    /// Returns the definition of a type; follows aliases.
    pub(super) fn definition(&self, ty: Type) -> Option<&TypeDefKind> {
        let Type::Id(id) = ty else { return None };
        match &self.resolve.types[id].kind {
            TypeDefKind::Type(ty @ Type::Id(_)) => self.definition(*ty),
            kind => Some(kind),
        }
    }

    /// Returns the kind of a handle's type; follows aliases.
    fn handle(&self, ty: Type) -> Option<usize> {
        let Some(TypeDefKind::Handle(Handle::Own(id) | Handle::Borrow(id))) = self.definition(ty) else { return None };
        let mut id = *id;
        while let TypeDefKind::Type(Type::Id(named)) = &self.resolve.types[id].kind {
            id = *named;
        }
        self.kind(id)
    }

    /// Classifies the type of a parameter.
    fn parameter(&self, ty: Type) -> Parameter {
        let inner = match self.definition(ty) {
            Some(TypeDefKind::Option(inner)) => self.handle(*inner).map(Parameter::Perhaps),
            Some(TypeDefKind::List(inner)) => self.handle(*inner).map(Parameter::Several),
            _ => self.handle(ty).map(Parameter::Borrowed),
        };
        inner.unwrap_or(Parameter::Plain(ty))
    }

    /// Classifies the type of a result.
    fn answer(&self, ty: Type) -> Answer {
        if let Some(kind) = self.handle(ty) {
            return Answer::Handle(kind);
        }
        let Some(TypeDefKind::Result(result)) = self.definition(ty) else { return Answer::Nothing };
        let Some(ok) = result.ok else { return Answer::Outcome };
        match (self.handle(ok), self.definition(ok)) {
            (Some(kind), _) => Answer::Handle(kind),
            (None, Some(TypeDefKind::List(inner))) => self.handle(*inner).map_or(Answer::Outcome, Answer::Handles),
            _ => Answer::Outcome,
        }
    }

    /// Returns how many flat arguments a parameter takes.
    fn width(&self, parameter: Parameter) -> usize {
        match parameter {
            Parameter::Borrowed(_) | Parameter::Taken(_) => 1,
            Parameter::Perhaps(_) | Parameter::Several(_) => 2,
            Parameter::Plain(Type::String) => 2,
            Parameter::Plain(ty) => match self.definition(ty) {
                Some(TypeDefKind::List(_) | TypeDefKind::Option(_) | TypeDefKind::Variant(_)) => 2,
                _ => 1,
            },
        }
    }

    /// Encodes the guest.
    pub(super) fn component(&self) -> Vec<u8> {
        let mut module = wat::parse_str(self.text()).expect("the guest is a module");
        let world =
            self.resolve.worlds.iter().find(|(_, world)| world.name == "method").expect("methods have a world").0;
        embed_component_metadata(&mut module, &self.resolve, world, StringEncoding::UTF8).expect("it fits the world");
        let mut encoder = ComponentEncoder::default().module(&module).expect("it fits the world");
        encoder.encode().expect("it is a component")
    }

    /// Writes the core module of the guest.
    fn text(&self) -> String {
        let mut text = "(module\n(type $call (func))\n".to_owned();
        for (number, import) in self.imports.iter().enumerate() {
            let Import { module, key, flat, result, .. } = import;
            let parameters: String = flat.iter().map(|ty| format!(" (param {})", name(*ty))).collect();
            let result = result.map(|ty| format!(" (result {})", name(ty))).unwrap_or_default();
            _ = writeln!(text, "(import \"{module}\" \"{key}\" (func $import-{number}{parameters}{result}))");
        }
        text += include_str!("interpreter.wat");
        let count = self.imports.len();
        let arities = self.imports.iter().map(|import| import.flat.len() - usize::from(import.indirect));
        let arities: String = arities.map(|arity| format!("\\{arity:02x}")).collect();
        let calls: String = (0..count).map(|number| format!(" $call-{number}")).collect();
        let batches = self.kinds.iter().position(|kind| self.resolve.types[*kind].name.as_deref() == Some("batch"));
        let batches = batches.expect("there is a batch");
        let log = self.number("run/log");
        _ = writeln!(
            text,
            "(table {count} {count} funcref)\n(elem (i32.const 0){calls})\n(data (i32.const 1024) \"{arities}\")\n\
             (global $batches i32 (i32.const {batches}))\n\
             (func $tell (param i32 i32) (call $import-{log} (local.get 0) (local.get 1)))\n\
             (func $drop-batches (call $drop-kind-{batches}))"
        );
        let mut all = String::new();
        for (number, import) in self.imports.iter().enumerate() {
            text += &self.stub(number, import);
            if let [(_, Parameter::Taken(kind))] = import.parameters.as_slice() {
                _ = writeln!(text, "{}", drops(*kind, number));
                _ = write!(all, " (call $drop-kind-{kind})");
            }
        }
        text + &format!("(func $drop-all{all}))\n")
    }

    /// Writes the function that makes one call.
    fn stub(&self, number: usize, import: &Import) -> String {
        let (mut picks, mut at) = (String::new(), ARGUMENTS);
        for (_, parameter) in &import.parameters {
            let pick = |kind: usize, at: usize, gone: u8| {
                format!("(call $pick (i32.const {kind}) (i32.const {at}) (i32.const {gone}))")
            };
            picks += &match *parameter {
                Parameter::Borrowed(kind) => pick(kind, at, 0),
                Parameter::Taken(kind) => pick(kind, at, 1),
                Parameter::Perhaps(kind) => {
                    format!("(if (i32.load (i32.const {at})) (then {}))", pick(kind, at + 8, 0))
                }
                Parameter::Several(kind) => format!("(call $pick-all (i32.const {kind}) (i32.const {at}))"),
                Parameter::Plain(_) => String::new(),
            };
            at += 8 * self.width(*parameter);
        }
        let arity = import.flat.len() - usize::from(import.indirect);
        assert_eq!(at, ARGUMENTS + 8 * arity, "the arguments of `{}`", import.name);
        let loads = import.flat[..arity].iter().zip(0..);
        let loads: String =
            loads.map(|(ty, at)| format!(" ({}.load (i32.const {}))", name(*ty), ARGUMENTS + 8 * at)).collect();
        let pointer = if import.indirect { " (i32.const 64)" } else { "" };
        let call = format!("(call $import-{number}{loads}{pointer})");
        let answered = format!("(call $answered (i32.const {number}))");
        let noted = format!("(call $note (i32.const {number}) (i32.const 0))");
        let call = match (&import.answer, import.indirect) {
            (Answer::Handle(kind), false) => format!("(call $push (i32.const {kind}) {call}) {noted}"),
            (Answer::Handle(kind), true) => {
                format!("{call} (if {answered} (then (call $push (i32.const {kind}) (i32.load (i32.const 68)))))")
            }
            (Answer::Handles(kind), _) => format!("{call} (if {answered} (then (call $push-all (i32.const {kind}))))"),
            (Answer::Outcome, true) => format!("{call} (drop {answered})"),
            _ if import.result.is_some() => format!("(drop {call}) {noted}"),
            _ => format!("{call} {noted}"),
        };
        format!("(func $call-{number} {picks} (if (global.get $skip) (then (return))) {call})\n")
    }
}

/// Writes a function that drops all handles of a kind, by import `number`.
fn drops(kind: usize, number: usize) -> String {
    format!(
        "(func $drop-kind-{kind} (loop $next (if (i32.eqz (i32.load (call $table (i32.const {kind})))) (then (return))) \
         (i32.store (i32.const {ARGUMENTS}) (i32.const 0)) \
         (call $pick (i32.const {kind}) (i32.const {ARGUMENTS}) (i32.const 1)) \
         (call $import-{number} (i32.load (i32.const {ARGUMENTS}))) (br $next)))"
    )
}

/// Returns the name of a type in the text format.
fn name(ty: WasmType) -> &'static str {
    match ty {
        WasmType::I64 | WasmType::PointerOrI64 => "i64",
        WasmType::F32 => "f32",
        WasmType::F64 => "f64",
        _ => "i32",
    }
}
