//! What is written from the contract and kept in the repository: the tensor operations of the SDK, and how the golden rows
//! of `tests/ops.rs` call each.

use std::fmt::Write as _;

use tunebox_contract::{Contract, Cost, Function};

use super::contract;
use crate::support::golden::assert_file;

/// Functions of the interface that the SDK offers as operators, or writes by hand.
const ELSEWHERE: [&str; 5] = ["add", "subtract", "multiply", "divide", "where_"];

/// The tensor operations with their classes.
fn operations(contract: &Contract) -> impl Iterator<Item = (Function<'_>, &str)> {
    contract.functions().filter_map(|function| match &function.row.cost {
        Cost::Operation(class) => Some((function, class.as_str())),
        _ => None,
    })
}

/// A text of the contract as doc comment: operations as Rust names them, no brackets that look like links.
fn doc(contract: &Contract, function: &Function<'_>) -> String {
    let is_operation = |name: &str| contract.functions().any(|function| function.signature.item_name() == name);
    let part = |(index, part): (usize, &str)| match index % 2 {
        0 => part.replace('[', "\\[").replace(']', "\\]"),
        _ if is_operation(part) => part.replace('-', "_"),
        _ => part.to_owned(),
    };
    let text = function.text().split('`').enumerate().map(part).collect::<Vec<_>>().join("`");
    let (mut lines, mut line) = (String::new(), String::from("    ///"));
    for word in text.split(' ') {
        if line.chars().count() + word.chars().count() > 115 {
            lines += &line;
            lines.push('\n');
            line = String::from("    ///");
        }
        line.push(' ');
        line += word;
    }
    lines + &line + "\n"
}

/// A type as the SDK takes it.
fn sdk_parameter(ty: &str) -> &str {
    match ty {
        "Tensor" => "&Tensor",
        "Vec<u32>" => "&[u32]",
        "Vec<f32>" => "&[f32]",
        "String" => "&str",
        ty => ty,
    }
}

/// A row of one of the macros in `sdk/rust/src/tensor/call.rs`. An optional axis and what follows it about keeping that
/// axis are one argument, `over`.
fn row(contract: &Contract, function: &Function<'_>) -> String {
    let (mut before, mut after, mut over) = (Vec::new(), Vec::new(), false);
    for (name, ty) in function.parameters() {
        match ty.as_str() {
            _ if name == "self" => {}
            "Vec<Tensor>" => {}
            "Option<i32>" => over = true,
            "bool" if name == "keep" => {}
            ty if over => after.push(format!("{name}: {}", sdk_parameter(ty))),
            ty => before.push(format!("{name}: {}", sdk_parameter(ty))),
        }
    }
    let (name, before, after) = (function.rust_name(), before.join(", "), after.join(", "));
    let over = if over { format!(" over({after})") } else { String::new() };
    format!("{}    {name}({before}){over};\n", doc(contract, function))
}

#[test]
fn the_sdk_has_the_operations_of_the_contract() {
    let contract = contract();
    let [mut methods, mut comparisons, mut functions, mut lists] = [const { String::new() }; 4];
    for (function, class) in operations(&contract) {
        let takes_list = function.parameters().any(|(_, ty)| ty == "Vec<Tensor>");
        let kept = match (function.resource(), class) {
            _ if ELSEWHERE.contains(&function.rust_name().as_str()) || function.result() == "Vec<Tensor>" => continue,
            (Some(_), _) => &mut methods,
            (None, "Pairwise" | "Compare") => {
                comparisons += &format!("{}    {};\n", doc(&contract, &function), function.rust_name());
                continue;
            }
            _ if takes_list => &mut lists,
            _ => &mut functions,
        };
        *kept += &row(&contract, &function);
    }
    let source = format!(
        "//! The operations of `wit/tensor.wit`. Generated from the contract; `BLESS=1 cargo test` rewrites it.\n\n\
         use super::call::{{comparisons, functions, list_functions, methods}};\nuse super::{{Dtype, Tensor}};\n\n\
         methods! {{\n{methods}}}\n\ncomparisons! {{\n{comparisons}}}\n\nfunctions! {{\n{functions}}}\n\n\
         list_functions! {{\n{lists}}}\n"
    );
    assert_file("sdk/rust/src/tensor/operations.rs", &source);
}

#[test]
fn the_golden_rows_can_call_every_operation() {
    let contract = contract();
    let mut arms = String::new();
    for (function, class) in operations(&contract) {
        let (mut operands, mut passed) = (Vec::new(), Vec::new());
        let parameters: Vec<_> = function.parameters().collect();
        let list = parameters.iter().any(|(_, ty)| ty == "Vec<Tensor>");
        let is_drawn = parameters.iter().any(|(_, ty)| ty == "String");
        match () {
            () if class == "View" => {}
            () if !list && !parameters.iter().any(|(_, ty)| ty == "Tensor") => {
                passed.extend(["budget", "&Device::Cpu"].map(str::to_owned));
            }
            () => passed.push("budget".to_owned()),
        }
        if is_drawn {
            passed.push("&mut Stream::new(1, \"rows\")".to_owned());
        }
        for (name, ty) in parameters {
            let name = if name == "self" { "this".to_owned() } else { name };
            match ty.as_str() {
                "Tensor" => {
                    passed.push(name.clone());
                    operands.push(name);
                }
                "Vec<Tensor>" => passed.push("&tensors.iter().collect::<Vec<_>>()".to_owned()),
                "String" => {}
                "Vec<u32>" if name == "shape" => passed.push("&row.argument::<Vec<u32>>(\"shape\")".to_owned()),
                _ => passed.push(format!("row.argument(\"{name}\")")),
            }
        }
        let (name, path) = (function.rust_name(), function.row.path.rsplit('.').next().unwrap());
        let operands = if list { "tensors".to_owned() } else { format!("[{}]", operands.join(", ")) };
        let call = format!("ops::{name}({})", passed.join(", "));
        let call = if function.result() == "Vec<Tensor>" { call } else { format!("one({call})") };
        let _ = writeln!(arms, "        ({path:?}, {operands}) => {call},");
    }
    let source = format!(
        "//! How a row of the golden table calls its operation. Generated from the contract; `BLESS=1 cargo test` rewrites it.\n\n\
         use tunebox_compute::error::Result;\nuse tunebox_compute::ops::{{self, Meter, Output}};\n\
         use tunebox_compute::random::Stream;\nuse tunebox_compute::{{Device, Tensor}};\n\n\
         use crate::ops::call::one;\nuse crate::ops::row::Row;\n\n\
         /// The results of a row, each with its reservation. Panics if the contract has no such operation.\n\
         #[rustfmt::skip]\n\
         #[expect(clippy::too_many_lines, reason = \"one line an operation\")]\n\
         pub(crate) fn call(row: &Row, tensors: &[Tensor], budget: &mut dyn Meter) -> Result<Vec<Output>> {{\n    \
         match (row.op.as_str(), tensors) {{\n{arms}        _ => panic!(\"no call for {{row}}\"),\n    }}\n}}\n"
    );
    assert_file("tests/ops/operations.rs", &source);
}
