//! Makes the template of a verifier or an environment of that of a method.

use super::{DESCRIPTION, DESCRIPTIONS, SDK, fill_template, replace_readme};
use crate::World;
use crate::sources::Files;

/// The line of `Cargo.toml` that names the SDK, for an environment.
const SDK_OF_ENVIRONMENT: &str =
    "tunebox = { path = \".tunebox/sdk/rust\", version = \"0.1\", features = [\"environment\"] }\n";

/// Turns the template `files` of a method called `name` into the template of a verifier or an environment (`world`):
/// replaces source, README and description, and adds tests. `language` is the folder of the language in the templates,
/// such as `rust/`.
pub(super) fn rewrite(files: &mut Files, name: &str, language: &str, world: World) {
    let kind = format!("kinds/{}/", world.name());
    let page = fill_template(&kind, name).remove("page.md").unwrap_or_default();
    replace_readme(files, &format!("{}\n", String::from_utf8_lossy(&page)));
    files.extend(fill_template(&format!("{kind}{language}"), name));
    let described = DESCRIPTIONS.iter().find(|text| text.contains(world.name())).copied().unwrap_or(DESCRIPTION);
    for manifest in ["Cargo.toml", "pyproject.toml"] {
        let Some(bytes) = files.get_mut(manifest) else { continue };
        let mut text = String::from_utf8_lossy(bytes).replace(DESCRIPTION, described);
        if world == World::Environment {
            text = text.replace(SDK, SDK_OF_ENVIRONMENT);
        }
        *bytes = text.into_bytes();
    }
}
