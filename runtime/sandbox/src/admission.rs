//! What a component is allowed to be, checked on its bytes before anything compiles them.
//!
//! The bytes are parsed once (`survey`), then the names of imports, their functions and exports are compared with the
//! grants and with the version of the contract that this host implements. Types are compared later, by the linker.

mod survey;

use semver::Version;
use tunebox_foundation::contract::{CONTRACT, PACKAGE, is_of_track, version_mismatch};
use tunebox_foundation::explain::Explanation;
use wasmparser::component_types::ComponentEntityType;
use wasmparser::types::Types;

pub(crate) use self::survey::{Survey, examine};
use self::survey::{survey, validate};
use crate::costs::cost_of;
use crate::error::Error;
use crate::grants::{Grants, KNOWN_INTERFACES, TRAINING, split_full_name};
use crate::limits::Limits;
use crate::printable::printable;

/// The longest name of an import, export or function in an error, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// Returns the full names of everything that a component imports, in the component's order. Parses the bytes once;
/// neither validates nor compiles them.
///
/// # Errors
/// When the bytes are no component, cannot be parsed, or contain something that the contract excludes: see `survey`,
/// which lists it.
pub fn imports(bytes: &[u8]) -> Result<Vec<String>, Error> {
    Ok(survey(bytes, "this file")?.imports)
}

/// Checks a component without compiling it, in this order: its size against `component-bytes` of `limits`; its
/// features, counts and sizes by the rules of `survey`; its imports against `grants`; the export `training`; and its
/// types, which must be valid, with every function that it imports known to this host. `method` names the component in
/// errors. Returns the full names of its imports.
///
/// # Errors
/// Of the first check that fails: [`Error::TooLarge`], [`Error::Malformed`], [`Error::NotAdmitted`],
/// [`Error::NotGranted`] or [`Error::Mismatch`].
pub fn admit(bytes: &[u8], method: &str, grants: &Grants, limits: &Limits) -> Result<Vec<String>, Error> {
    let survey = admit_without_types(bytes, method, grants, limits)?;
    check_types(bytes, &survey.imports, method)?;
    Ok(survey.imports)
}

/// Does the checks of [`admit`] on size, form, imports and the export `training`, in that order. Leaves out the check
/// of the types, which is made once, before a component is compiled. Returns the imports, exports and counts that it
/// collected.
pub(crate) fn admit_without_types(
    bytes: &[u8],
    method: &str,
    grants: &Grants,
    limits: &Limits,
) -> Result<Survey, Error> {
    let survey = examine(bytes, method, limits.component_bytes)?;
    survey.imports.iter().try_for_each(|import| check_import(grants, import, method))?;
    if let Some(missing) = missing_export(&survey, method, TRAINING)? {
        let refusal = Explanation::new("sandbox", format!("`{method}` does not offer what a method must"));
        return Err(refusal
            .with_location(format!("export `{missing}`, missed before anything ran"))
            .with_why("the host calls `init`, `step` and `finish`; without them there is nothing to run")
            .with_hint("`tunebox new NAME` writes a method that has all of it")
            .into());
    }
    Ok(survey)
}

/// Validates a component with these imports (full names), and checks that this host provides every function of them
/// that the component uses. Errors: bytes that are invalid or take longer than 5 s to validate, and a missing function.
pub(crate) fn check_types(bytes: &[u8], imports: &[String], name: &str) -> Result<(), Error> {
    let types = validate(bytes, name)?;
    imports.iter().try_for_each(|import| check_functions(&types, import, name))
}

/// Checks one import, by its full name, against the contract and the grants of the run. Errors: [`Error::NotGranted`]
/// for a name outside the contract and for an interface that `grants` lacks; that of [`needs_version`] for another
/// track (major and minor version) than this host's, and for an unknown interface of a newer version.
pub(crate) fn check_import(grants: &Grants, import: &str, method: &str) -> Result<(), Error> {
    let shown = printable(import, MAX_NAME_BYTES);
    let refused = |by_name| Err(Error::NotGranted { method: method.to_owned(), import: shown.clone(), by_name });
    let Some((interface, version)) = split_full_name(import) else { return refused(false) };
    let is_known = KNOWN_INTERFACES.contains(&interface);
    if !is_of_track(&version) || (!is_known && version > CONTRACT) {
        return Err(needs_version(method, &version, &format!("import `{shown}`"), interface));
    }
    if is_known && grants.interfaces.contains(interface) { Ok(()) } else { refused(is_known) }
}

/// Builds the error for a component that needs version `wants` of the contract, which this host does not provide.
/// `component` is its name. `location` names the import or export that shows the version; `item` is the interface or
/// function that is missing.
fn needs_version(component: &str, wants: &Version, location: &str, item: &str) -> Error {
    version_mismatch(component, wants, location, format!("`{item}` is newer than {CONTRACT}")).into()
}

/// Returns `None` if the component exports `interface` in the contract's track (same major and minor version), else the
/// full name that it should export.
///
/// `name` names the component in the error. Errors: that of [`needs_version`] if the component exports `interface` only
/// in another track. Of several such exports it shows the last.
pub(crate) fn missing_export(survey: &Survey, name: &str, interface: &str) -> Result<Option<String>, Error> {
    let offered = survey.exports.iter().filter_map(|export| {
        let (found, version) = split_full_name(export)?;
        (found == interface).then_some((export, version))
    });
    let mut other = None;
    for (export, version) in offered {
        if is_of_track(&version) {
            return Ok(None);
        }
        other = Some((export, version));
    }
    match other {
        Some((export, wants)) => {
            Err(needs_version(name, &wants, &format!("export `{}`", printable(export, MAX_NAME_BYTES)), interface))
        }
        None => Ok(Some(format!("{PACKAGE}/{interface}@{CONTRACT}"))),
    }
}

/// Checks that this host provides every function that the component uses of one import. A function is provided if it
/// has a row in the table of costs. Does nothing for an import whose name is not one of the contract's package, or that
/// is no interface. Errors for the first function that is missing: that of [`needs_version`] if the import's version is
/// newer than this host's, else [`Error::Mismatch`].
fn check_functions(types: &Types, import: &str, method: &str) -> Result<(), Error> {
    let Some((interface, wants)) = split_full_name(import) else { return Ok(()) };
    let Some(ComponentEntityType::Instance(instance)) = types.component_item_for_import(import).map(|item| item.ty)
    else {
        return Ok(());
    };
    for (export, item) in &types[instance].exports {
        let function = cost_table_name(interface, export);
        if !matches!(item.ty, ComponentEntityType::Func(_)) || cost_of(&function).is_some() {
            continue;
        }
        let function = printable(&function, MAX_NAME_BYTES);
        return Err(if wants > CONTRACT {
            needs_version(method, &wants, &format!("import `{}`", printable(import, MAX_NAME_BYTES)), &function)
        } else {
            let difference = format!("`{PACKAGE}@{CONTRACT}` has no `{function}`");
            Error::Mismatch { method: method.to_owned(), difference }
        });
    }
    Ok(())
}

/// Converts a function's WIT name to its name in the table of costs: `[method]tensor.add` of interface `tensor` becomes
/// `tensor.tensor.add`, `[constructor]scope` becomes `tensor.scope.constructor`.
fn cost_table_name(interface: &str, export: &str) -> String {
    match export.strip_prefix("[constructor]") {
        Some(resource) => format!("{interface}.{resource}.constructor"),
        None => format!("{interface}.{}", export.rsplit(']').next().unwrap_or(export)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Checks an import against the default grants.
    fn answer(import: &str) -> Result<(), Error> {
        check_import(&Grants::default(), import, "calm")
    }

    #[test]
    fn types_that_take_long_to_check_are_refused() {
        let tuple = |part: &str, times| format!("(tuple{})", format!(" {part}").repeat(times));
        let types = [("$a", tuple("u8", 100)), ("$b", tuple("$a", 100)), ("$c", tuple("$b", 98))];
        let types = types.map(|(name, tuple)| format!("(type {name} {tuple})")).concat();
        let uses = "(core func (canon lower (func $f) (memory $memory)))".repeat(1_000);
        let text = format!(
            r#"(component {types}
            (core module $m (memory (export "memory") 1) (func (export "f") (result i32) (i32.const 0)))
            (core instance $i (instantiate $m))
            (alias core export $i "memory" (core memory $memory))
            (func $f (result $c) (canon lift (core func $i "f") (memory $memory)))
            {uses})"#
        );
        let bytes = wat::parse_str(text).unwrap();
        let error = survey::validate_within(Duration::from_millis(100), &bytes, "calm").err().unwrap();
        let wanted =
            "`calm` is not a component that this host runs: its types cannot be checked: it takes longer than 0.1 s";
        assert_eq!(error.to_string(), wanted);
    }

    #[test]
    fn weights_and_text_are_granted_by_name_only() {
        let import = "tunebox:method/weights@0.2.0";
        assert!(matches!(answer(import), Err(Error::NotGranted { by_name: true, .. })));
        assert!(check_import(&Grants::default().with("weights"), import, "calm").is_ok());
    }

    #[test]
    fn a_later_patch_of_the_contract_is_the_same_contract() {
        assert!(answer("tunebox:method/tensor@0.2.7").is_ok());
    }

    #[test]
    fn what_another_version_has_is_told_apart_from_what_is_none_of_the_contract() {
        for (name, version) in [
            ("tunebox:method/tensor@0.3.0", "0.3.0"),
            ("tunebox:method/tensor@0.10.0", "0.10.0"),
            ("tunebox:method/tensor@1.1.0", "1.1.0"),
            ("tunebox:method/tensor@0.0.9", "0.0.9"),
            ("tunebox:method/telepathy@0.2.3", "0.2.3"),
        ] {
            let wanted = format!("`calm` needs `tunebox:method@{version}`, this program keeps 0.2.0");
            assert_eq!(answer(name).unwrap_err().to_string(), wanted, "{name}");
        }
        assert!(matches!(answer("tunebox:method/telepathy@0.2.0"), Err(Error::NotGranted { by_name: false, .. })));
    }

    #[test]
    fn look_alike_names_are_foreign() {
        for name in [
            "tunebox:method/tensor@0.2",
            "tunebox:method/tensor@0.2.",
            "tunebox:method/tensor@0.2.0-rc",
            "tunebox:method/tensor@0.01.0",
            "tunebox:method/tensor@0.2.0.0",
            "tunebox:method/tensor@0.2.99999999999999999999",
            "tunebox:methods/tensor@0.2.0",
            "tensor",
            "wasi:filesystem/preopens@0.2.6",
        ] {
            assert!(matches!(answer(name), Err(Error::NotGranted { by_name: false, .. })), "{name}");
        }
    }
}
