//! Pages from templates. Every value is escaped, but for the plots, whose text is escaped where they are drawn, and the
//! style.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;
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

/// The values of the template `head.html`, which every page begins with.
#[derive(Serialize)]
pub(super) struct Head {
    title: String,
    /// Seconds after which a browser loads the page again.
    refresh: Option<u32>,
    style: &'static str,
    /// The SHA-256 of the style in Base64: the only style that the page permits.
    style_digest: String,
    version: &'static str,
}

impl Head {
    /// Creates the head of a page. `refresh` is the number of seconds after which a browser loads the page again, if it
    /// does.
    pub(super) fn new(title: String, refresh: Option<u32>) -> Self {
        let style_digest = STANDARD.encode(Sha256::digest(STYLE));
        Self { title, refresh, style: STYLE, style_digest, version: env!("CARGO_PKG_VERSION") }
    }
}

/// Renders a template. A template that cannot be rendered, which a test excludes, gives a page with the reason.
pub(super) fn render(template: &str, page: &impl Serialize) -> String {
    let mut environment = Environment::new();
    let added = TEMPLATES.into_iter().try_for_each(|(name, text)| environment.add_template(name, text));
    let rendered = added.and_then(|()| environment.get_template(template)?.render(Serde(page)));
    rendered.unwrap_or_else(|error| {
        format!("<!doctype html><title>tunebox</title><p>{}", super::text::attribute(&error.to_string()))
    })
}
