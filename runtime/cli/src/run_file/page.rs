//! The reference of run files, as `tunebox help run-file` prints it.

use super::{Key, Table, tables};
use crate::terminal::wrap;

/// Characters of a line.
const WIDTH: usize = 80;

/// What stands before the tables.
const INTRODUCTION: &str = "A run file is a TOML file that describes a run: `tunebox train FILE` carries it out, \
    `tunebox check FILE` checks it, `tunebox init` writes one. `--set TABLE.KEY=VALUE` replaces a key for one command. \
    Paths start at the folder of the file.";

/// What stands after the tables.
const EDITORS: &str = "`tunebox run-file --schema` prints these keys as a JSON schema. Editors that know Taplo or Even \
    Better TOML complete and check a run file with the first line `#:schema PATH`; `tunebox init` writes both.";

/// Returns the reference: every table and key with its values, default and effect, in lines of at most 80 characters.
pub(crate) fn page() -> String {
    let mut lines = wrap(INTRODUCTION, WIDTH);
    for table in tables() {
        lines.push(String::new());
        lines.extend(table_lines(&table));
    }
    lines.push(String::new());
    lines.extend(wrap(EDITORS, WIDTH));
    lines.join("\n") + "\n"
}

/// Formats a table: its heading and text, its keys, and a sentence about further keys if it may have any.
fn table_lines(table: &Table) -> Vec<String> {
    let mut lines = wrap(&format!("{}  {}", table.heading, table.text), WIDTH);
    for key in &table.keys {
        lines.push(String::new());
        lines.extend(key_lines(key));
    }
    if table.is_open {
        lines.push(String::new());
        lines.extend(wrap_indented("", "Further keys are settings; `tunebox inspect NAME` lists them.", 2));
    }
    lines
}

/// Formats a key with its values and default, and below that its effect and what each choice means.
fn key_lines(key: &Key) -> Vec<String> {
    let default = match &key.default {
        Some(value) => format!(" [default: {value}]"),
        None if key.is_required => " [required]".to_owned(),
        None => String::new(),
    };
    let mut lines = wrap_indented(&format!("{}  ", key.name), &format!("{}{default}", key.takes), 2);
    lines.extend(wrap_indented("", &key.text, 6));
    for (choice, text) in &key.choices {
        lines.extend(wrap_indented(&format!("{choice}: "), text, 8));
    }
    lines
}

/// Wraps `first` and `text` as one text to lines of at most [`WIDTH`] characters behind `indent` blanks. Lines after
/// the first get four more blanks if `first` is not empty.
fn wrap_indented(first: &str, text: &str, indent: usize) -> Vec<String> {
    let hanging = if first.is_empty() { indent } else { indent + 4 };
    let wrapped = wrap(&format!("{first}{text}"), WIDTH - hanging);
    let width = |number: usize| if number == 0 { indent } else { hanging };
    wrapped.iter().enumerate().map(|(number, line)| format!("{:1$}{line}", "", width(number))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_key_with_its_effect_in_eighty_columns() {
        let page = page();
        let wide = page.lines().find(|line| line.chars().count() > WIDTH);
        assert_eq!(wide, None);
        for table in tables() {
            assert!(page.contains(&format!("\n{}  ", table.heading)), "{}", table.heading);
            for key in table.keys {
                assert!(page.contains(&format!("\n  {}  ", key.name)), "{}", key.name);
                assert!(!key.text.is_empty() && key.takes != "value", "{} takes {}", key.name, key.takes);
            }
        }
        assert!(
            page.contains("batch  whole number from 1 to 65,536 [default: 4]\n      Examples in a micro-batch."),
            "{page}"
        );
    }
}
