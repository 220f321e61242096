//! The tensor operations as the host implements them: from handles to the function of `tunebox_compute::ops` with the
//! same name and the same parameters in the same order.

use std::fmt::Write as _;

use crate::{Contract, Cost, Function};

/// Generates two macros that implement the tensor operations on the host: `tensor_methods!()` for those that are
/// methods of the resource `tensor`, `tensor_functions!()` for those of the interface. Leaves out functions of the
/// interface that are no tensor operations in the cost table. Each macro is called inside the `impl` of its generated
/// trait.
pub fn operations(contract: &Contract) -> String {
    let mut source = String::new();
    for (name, resource) in [("tensor_methods", Some("tensor")), ("tensor_functions", None)] {
        let _ = writeln!(source, "macro_rules! {name} {{\n    () => {{");
        for function in contract.functions().filter(|function| function.interface == "tensor") {
            if let Cost::Operation(class) = &function.row.cost
                && function.resource() == resource
            {
                source += &operation(&function, class);
            }
        }
        source += "    };\n}\n";
    }
    source
}

/// Generates the host's function for one tensor operation of the cost class `class`: its signature, with handles for
/// tensors, and one call of a method of the host around `ops::…`. That method is `operate_on_list` if a parameter is a
/// list of tensors, else `draw` if one is a text (the name of a random stream), else `create` without tensors, else
/// `split` if the result is a list of tensors, else `operate`. An operation of class `View` gets no budget.
fn operation(function: &Function<'_>, class: &str) -> String {
    let (name, path) = (function.rust_name(), &function.row.path);
    let (mut signature, mut passed, mut operands, mut list, mut stream) =
        (String::from("&mut self"), Vec::new(), Vec::new(), None, None);
    for (parameter, ty) in function.parameters() {
        let parameter = if parameter == "self" { "this".to_owned() } else { parameter };
        let _ = write!(signature, ", {parameter}: {}", ty.replace("Tensor", "Handle"));
        passed.push(match ty.as_str() {
            "Dtype" => format!("element_type({parameter})"),
            // Lengths are read; the other lists become the numbers of the result.
            "Vec<u32>" if parameter == "shape" => "&shape".to_owned(),
            _ => parameter.clone(),
        });
        match ty.as_str() {
            "Tensor" => operands.push(parameter),
            "Vec<Tensor>" => list = Some(parameter),
            "String" => stream = Some(parameter),
            _ => {}
        }
    }
    let (lent, named) =
        (operands.iter().map(|name| format!("&{name}")).collect::<Vec<_>>().join(", "), operands.join(", "));
    let is_split = function.result() == "Vec<Tensor>";
    let limit = function.row.limit.as_deref().unwrap_or_default();
    let passed = passed.join(", ");
    let call = match (&list, &stream, operands.is_empty()) {
        (Some(list), ..) => {
            format!(
                "self.operate_on_list({path:?}, &{list}, ops::{limit}, |budget, {list}| ops::{name}(budget, {passed}))"
            )
        }
        (_, Some(stream), _) => {
            format!("self.draw({path:?}, &{stream}, |budget, device, {stream}| ops::{name}(budget, device, {passed}))")
        }
        (_, _, true) => format!("self.create({path:?}, |budget, device| ops::{name}(budget, device, {passed}))"),
        _ if is_split => format!("self.split({path:?}, &{named}, |{named}| ops::{name}({passed}))"),
        // A view needs no bytes of its own.
        _ if class == "View" => format!("self.operate({path:?}, [{lent}], |_, [{named}]| ops::{name}({passed}))"),
        _ => format!("self.operate({path:?}, [{lent}], |budget, [{named}]| ops::{name}(budget, {passed}))"),
    };
    let result = if is_split { "Result<Vec<Handle>, Refusal>" } else { "Answer" };
    format!("        fn {name}({signature}) -> {result} {{\n            {call}\n        }}\n")
}
