//! Every function of the contract has a row in the table of costs, and is charged by that row.

use std::collections::BTreeSet;

use wit_parser::Resolve;

use super::{COSTS, Cost, TABLE, cost_of};

/// The functions of the world `method`, named as `State::enter` names them.
fn functions() -> BTreeSet<String> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit")).unwrap();
    let world = &resolve.worlds[resolve.select_world(&[package], Some("method")).unwrap()];
    let mut names = BTreeSet::new();
    for item in world.imports.values() {
        let wit_parser::WorldItem::Interface { id, .. } = item else { continue };
        let interface = &resolve.interfaces[*id];
        let owner = interface.name.as_deref().unwrap();
        for key in interface.functions.keys() {
            let name = key.rsplit(']').next().unwrap();
            let suffix = if key.starts_with("[constructor]") { ".constructor" } else { "" };
            names.insert(format!("{owner}.{name}{suffix}"));
        }
    }
    names
}

#[test]
fn every_function_of_the_contract_has_a_row_and_every_row_a_function() {
    let rows: BTreeSet<String> = TABLE.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(rows, functions());
}

#[test]
fn rows_are_found_by_their_names() {
    assert!(TABLE.is_sorted_by_key(|(name, _)| *name), "a row stands out of order");
    assert!(TABLE.iter().all(|(name, cost)| cost_of(name) == Some(*cost)));
}

/// The names that host functions pass to `State::enter` are those of the rows, each used once.
#[test]
fn every_import_enters_under_its_own_name() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/imports");
    let mut texts = include_str!(concat!(env!("OUT_DIR"), "/operations.rs")).to_owned();
    let mut open = vec![std::path::PathBuf::from(folder)];
    while let Some(path) = open.pop() {
        match path.is_dir() {
            true => open.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path())),
            false => texts.push_str(&std::fs::read_to_string(path).unwrap()),
        }
    }
    for (name, _) in TABLE {
        assert_eq!(texts.matches(&format!("\"{name}\"")).count(), 1, "`{name}`");
    }
}

/// `tests/ops.rs` writes `costs.txt` from the operations themselves.
#[test]
fn tensor_operations_are_of_the_kinds_that_the_table_says() {
    let golden = include_str!("../../../../tests/golden/costs.txt");
    let mut lines = golden.lines();
    assert_eq!(lines.next(), Some(format!("version {COSTS}").as_str()));
    let mut seen = 0;
    for line in lines {
        let (name, kind) = line.split(':').next().unwrap().split_once(' ').unwrap();
        let rows = ["tensor", "tensor.tensor"].map(|owner| cost_of(&format!("{owner}.{name}")));
        if let Some(Cost::Operation(found)) = rows.into_iter().flatten().next() {
            // Where the numbers lie in order, a reshape is a view and pays nothing.
            assert!(format!("{found:?}") == kind || (kind, name) == ("View", "reshape"), "{name} is {kind}");
            seen += 1;
        }
    }
    assert!(seen > 80, "{seen}");
}
