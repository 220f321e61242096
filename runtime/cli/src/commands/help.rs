//! What `--help` adds where a command line names a method: the settings of that method.

use std::path::Path;

use tunebox_package::Reference;

use super::inspect;
use crate::terminal::shown;

/// The settings of the method that a command line names, as text below its help. None: it names none.
pub(crate) fn settings(words: &[String]) -> Option<String> {
    let after = |flag: &str| words.iter().skip_while(|word| *word != flag).nth(1).map(String::as_str);
    let joined = words.iter().find_map(|word| word.strip_prefix("--method="));
    let method = joined.or_else(|| after("--method"))?;
    let base = Path::new(after("-C").unwrap_or("."));
    let text = match Reference::parse(method, base).and_then(|reference| reference.open()) {
        Ok(package) if package.manifest.settings.is_empty() => format!("`{method}` has no settings"),
        Ok(package) => {
            let title =
                format!("Settings of `{method}`, each by `--set method.NAME=VALUE` or in `[method]` of a run file:");
            inspect::settings(&title, &package.manifest).join("\n")
        }
        Err(error) => format!("The settings of `{method}` are not known: {error}"),
    };
    Some(format!("\n{}", shown(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_is_named_shows_what_may_be_set() {
        let told = |words: &str| settings(&words.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for words in ["tunebox train --method orpo --help", "tunebox train --help --method=orpo"] {
            let told = told(words).unwrap();
            assert!(told.contains("beta  The weight of the odds term") && told.contains("at least 0"), "{told}");
        }
        assert!(told("tunebox train --method orpoo --help").unwrap().contains("are not known"));
        assert_eq!(told("tunebox train --help"), None);
    }
}
