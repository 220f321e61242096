//! Meters in a compiled template: after every instruction that creates a value, one that charges it to the budget.
//!
//! The template engine counts steps and nothing else. Its instructions are public (and not stable: its version is
//! pinned), so the meters are inserted between them, and jumps are relocated.

use std::collections::BTreeMap;

use minijinja::machinery::{CompiledTemplate, Instruction, Instructions, eval, make_string_output};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Template, Value, machinery};

use super::budget;

/// Names of the metering functions. No name in a template begins with a space.
const CHARGE: &str = " charge";
const CHARGE_NESTED: &str = " charge nested";
const CHARGE_REPETITION: &str = " charge repetition";
const CHARGE_OUTPUT: &str = " charge output";

/// Registers the functions that the inserted instructions call to charge values, repetitions and output.
pub(super) fn register(environment: &mut Environment<'static>) {
    environment.add_function(CHARGE, |value: Value| budget::charge_value(&value).map(|()| value));
    environment.add_function(CHARGE_NESTED, |value: Value| budget::charge_nested_value(&value).map(|()| value));
    environment.add_function(CHARGE_REPETITION, |factors: &Value| {
        budget::charge_repetition(&factors.get_item_by_index(0)?, &factors.get_item_by_index(1)?)
    });
    environment.add_function(CHARGE_OUTPUT, |bytes: u64| budget::charge(bytes));
}

/// Whether a name begins with a space, as the names of the metering functions do.
pub(super) fn is_reserved_name(name: &str) -> bool {
    name.starts_with(' ')
}

/// Resets the budget and renders a template of this environment with meters inserted into its instructions. Errors:
/// those of the template, or a spent budget.
pub(super) fn render<'source>(
    environment: &'source Environment<'source>,
    template: &Template<'source, 'source>,
    context: Value,
) -> Result<String, Error> {
    budget::reset();
    let CompiledTemplate { instructions, blocks, .. } = machinery::get_compiled_template(template);
    let main = insert_meters(instructions)?;
    let blocks: Result<BTreeMap<_, _>, Error> =
        blocks.iter().map(|(name, block)| Ok((*name, insert_meters(block)?))).collect();
    let blocks = blocks?;
    let mut text = String::new();
    let mut output = make_string_output(&mut text);
    eval(environment, &main, context, &blocks, &mut output, AutoEscape::None).map(drop)?;
    Ok(text)
}

/// Copies a program with the instructions of [`meters_around`] inserted, and adjusts the targets of jumps. Keeps line
/// numbers and spans.
fn insert_meters<'source>(program: &Instructions<'source>) -> Result<Instructions<'source>, Error> {
    let mut places = Vec::new();
    let mut steps: Vec<(u32, Instruction<'source>)> = Vec::new();
    let mut number = 0;
    while let Some(step) = program.get(number) {
        places.push(steps.len() as u32);
        let (before, after) = meters_around(step)?;
        steps.extend(before.into_iter().chain([step.clone()]).chain(after).map(|step| (number, step)));
        number += 1;
    }
    places.push(steps.len() as u32);
    let mut metered = Instructions::new(program.name(), program.source());
    for (number, mut step) in steps {
        relocate_jump(&mut step, &places);
        match (program.get_span(number), program.get_line(number)) {
            (Some(span), _) => metered.add_with_span(step, span),
            (None, Some(line)) => metered.add_with_line(step, u16::try_from(line).unwrap_or(u16::MAX)),
            (None, None) => metered.add(step),
        };
    }
    Ok(metered)
}

type Steps<'source> = Vec<Instruction<'source>>;

/// The instructions to insert before and after an instruction, in this order; both are empty for one that makes no
/// value. Charges constants at once. Errors: an instruction that needs another template, or a constant over the budget.
fn meters_around<'source>(step: &Instruction<'source>) -> Result<(Steps<'source>, Steps<'source>), Error> {
    use Instruction as I;
    let meter = || vec![I::CallFunction(CHARGE, Some(1))];
    Ok(match step {
        I::Add
        | I::StringConcat
        | I::Slice
        | I::BuildList(_)
        | I::BuildTuple(_)
        | I::BuildMap(_)
        | I::ApplyFilter(..)
        | I::CallFunction(..)
        | I::CallMethod(..)
        | I::CallObject(_)
        | I::EndCapture => (Vec::new(), meter()),
        // The factors are looked at as a pair, and put back in their order.
        I::Mul => {
            let look = [I::BuildTuple(Some(2)), I::DupTop, I::CallFunction(CHARGE_REPETITION, Some(1)), I::DiscardTop];
            (look.into_iter().chain([I::UnpackList(2), I::Swap]).collect(), meter())
        }
        // Worked out while compiling, and looked at here for the first time.
        I::LoadConst(value) => {
            budget::charge_value(value)?;
            (Vec::new(), Vec::new())
        }
        I::SetAttr(_) => (vec![I::Swap, I::CallFunction(CHARGE_NESTED, Some(1)), I::Swap], Vec::new()),
        I::EmitRaw(text) => {
            let length = Value::from(text.len());
            (vec![I::LoadConst(length), I::CallFunction(CHARGE_OUTPUT, Some(1)), I::DiscardTop], Vec::new())
        }
        I::Include(_) | I::LoadBlocks | I::ExportLocals => {
            return Err(Error::new(ErrorKind::TemplateNotFound, "it asks for another template, and there is none"));
        }
        _ => (Vec::new(), Vec::new()),
    })
}

/// Replaces the target of a jump: `places` holds the new index of each old one. Does nothing for other instructions.
fn relocate_jump(step: &mut Instruction<'_>, places: &[u32]) {
    use Instruction as I;
    if let I::Iterate(goal)
    | I::Jump(goal)
    | I::JumpIfFalse(goal)
    | I::JumpIfFalseOrPop(goal)
    | I::JumpIfTrueOrPop(goal)
    | I::BuildMacro(_, goal, _) = step
    {
        *goal = places.get(*goal as usize).copied().unwrap_or(*goal);
    }
}
