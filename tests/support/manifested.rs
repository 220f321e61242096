//! Components with the manifest of a package, as a stranger would publish them.

use serde_json::{Value, json};
use tunebox_package::{manifest, section};

/// The component of a method called `name` without settings and metrics; `more` adds entries of its manifest, or replaces some.
pub(crate) fn manifested(name: &str, mut component: Vec<u8>, more: Value) -> Vec<u8> {
    let mut about = json!({
        "name": name, "version": "0.1.0", "description": "A component of a test", "shape": "supervised", "settings": [],
        "metrics": [], "interface": "0.2.0",
    });
    let Value::Object(more) = more else { panic!("entries are an object") };
    about.as_object_mut().unwrap().extend(more);
    section::append(&mut component, manifest::SECTION, about.to_string().as_bytes());
    component
}
