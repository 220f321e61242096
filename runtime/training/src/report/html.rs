//! Pages from templates. Every value is escaped, but for the plots, whose text is escaped where they are drawn, and the
//! style.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::Environment;
use minijinja::value::Serde;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The style of all pages.
const STYLE: &str = include_str!("templates/style.css");

/// The templates by name. The ending `.html` has every value escaped.
const TEMPLATES: [(&str, &str); 4] = [
    ("head.html", include_str!("templates/head.html")),
    ("figure.html", include_str!("templates/figure.html")),
    ("report.html", include_str!("templates/report.html")),
    ("compare.html", include_str!("templates/compare.html")),
];

/// Renders a template with the values of `page`, to which it adds the style, the SHA-256 of the style in Base64 (the
/// only style that the page permits) and the version. A template that cannot be rendered, which a test excludes, gives
/// a page with the reason.
pub(super) fn render(template: &str, page: &Value) -> String {
    let mut environment = Environment::new();
    environment.add_global("style", STYLE);
    environment.add_global("style_digest", STANDARD.encode(Sha256::digest(STYLE)));
    environment.add_global("version", env!("CARGO_PKG_VERSION"));
    let added = TEMPLATES.into_iter().try_for_each(|(name, text)| environment.add_template(name, text));
    let rendered = added.and_then(|()| environment.get_template(template)?.render(Serde(page)));
    rendered.unwrap_or_else(|error| {
        format!("<!doctype html><title>tunebox</title><p>{}", super::text::escape_markup(&error.to_string()))
    })
}
