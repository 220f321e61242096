//! Turns a component into a package: adds a README, and the custom sections that registries show.
//!
//! Those sections repeat what the manifest says, for tools that know nothing of tunebox.

use tunebox_foundation::explain::Explanation;
use tunebox_foundation::printable::{printable, printable_except};

use crate::statement::Statement;
use crate::{Error, provenance, read_manifest, section};

/// The custom section that holds the README.
pub const README: &str = "tunebox:readme";

/// The largest README, in bytes.
const MAX_README_BYTES: usize = 64 << 10;

/// The names of the custom sections that other tools for components read.
const STANDARD_SECTIONS: [&str; 3] = ["description", "licenses", "version"];

/// Returns a component with its README and the standard sections for description, licenses and version appended, in
/// place of those that it has. What [`provenance::attach`] added stays.
///
/// The same component and README give the same bytes, and packing a package again changes nothing. If `readme` is
/// `None`, a README that the component holds already stays. Errors: a component without a usable manifest, a README of
/// more than 64 KiB, a license that is no SPDX expression, or a package that cannot be signed: those of
/// [`Statement::of`].
pub fn pack(component: &[u8], readme: Option<&str>) -> Result<Vec<u8>, Error> {
    let manifest = read_manifest(component)?;
    let page = match readme {
        Some(text) => Some(normalize_readme(text)?),
        None => section::find(component, README)?.map(<[u8]>::to_vec),
    };
    if let Some(license) = &manifest.license {
        check_license(license)?;
    }

    let mut bytes = without_packed_sections(component)?;
    let [description, licenses, version] = STANDARD_SECTIONS;
    let [described, versioned] = [manifest.description, manifest.version].map(|text| Some(text.into_bytes()));
    let license = manifest.license.map(String::into_bytes);
    for (name, text) in [(description, described), (licenses, license), (version, versioned), (README, page)] {
        text.iter().for_each(|text| section::append(&mut bytes, name, text));
    }
    // Fails now for a package that could not be signed later.
    Statement::of(&bytes)?;
    Ok(bytes)
}

/// Whether two packages are equal apart from the sections that packing adds: README, description, licenses, version and
/// provenance. False if one of them is no component.
pub(crate) fn is_same_component(left: &[u8], right: &[u8]) -> bool {
    let rest = |package: &[u8]| section::without(&without_packed_sections(package)?, provenance::SECTION);
    matches!((rest(left), rest(right)), (Ok(left), Ok(right)) if left == right)
}

/// Returns a package without the sections that [`pack`] adds: [`README`] and those of [`STANDARD_SECTIONS`]. Errors:
/// malformed bytes.
fn without_packed_sections(package: &[u8]) -> Result<Vec<u8>, Error> {
    let mut bytes = section::without(package, README)?;
    for name in STANDARD_SECTIONS {
        bytes = section::without(&bytes, name)?;
    }
    Ok(bytes)
}

/// Returns the README inside a package, cut to 64 KiB, with control characters escaped except line feeds and tabs.
/// `None` if there is none. Errors: bytes that are no component, or two sections with a README.
pub fn readme(package: &[u8]) -> Result<Option<String>, Error> {
    let Some(text) = section::find(package, README)? else { return Ok(None) };
    let text = String::from_utf8_lossy(&text[..text.len().min(MAX_README_BYTES)]);
    Ok(Some(printable_except(&text, usize::MAX, &['\n', '\t'])))
}

/// Returns the text of a README as packages keep it: without a byte order mark, and with LF in place of CRLF. Errors:
/// more than 64 KiB.
fn normalize_readme(text: &str) -> Result<Vec<u8>, Error> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    if text.len() <= MAX_README_BYTES {
        return Ok(text.into_bytes());
    }
    let what = format!("the README has {} bytes, {MAX_README_BYTES} fit into a package", text.len());
    let error = Explanation::new("package", what).with_why("the page travels inside the package, wherever that goes");
    Err(error.with_hint("shorten it, and link to the rest").into())
}

/// Fails if a license is no SPDX expression.
fn check_license(license: &str) -> Result<(), Error> {
    let Err(error) = spdx::Expression::parse(license) else { return Ok(()) };
    let problem = printable(&error.reason.to_string(), 200);
    let what = format!("the license `{}` is not an SPDX expression", printable(license, 80));
    let error = Explanation::new("package", what)
        .with_why(format!("{problem}; `wkg` refuses a package whose license it cannot read"));
    Err(error.with_hint("write it as in `Apache-2.0` or `MIT OR Apache-2.0`").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;
    use crate::statement::tests::package;

    fn dpo() -> &'static [u8] {
        builtin::find("dpo").unwrap().bytes
    }

    #[test]
    fn packing_again_gives_the_same_bytes() {
        let once = pack(dpo(), Some("# Calm\n")).unwrap();
        assert_eq!(pack(dpo(), Some("# Calm\n")).unwrap(), once);
        assert_eq!(pack(&once, Some("# Calm\n")).unwrap(), once);
        assert_eq!(pack(&once, None).unwrap(), once);
        let plain = pack(dpo(), None).unwrap();
        assert_eq!(pack(&plain, None).unwrap(), plain);
        assert_ne!(plain, once);
    }

    #[test]
    fn a_package_is_still_the_component_and_says_what_its_manifest_says() {
        let packed = pack(dpo(), Some("# Calm\n")).unwrap();
        assert!(packed.starts_with(dpo()));
        let manifest = read_manifest(dpo()).unwrap();
        assert_eq!(read_manifest(&packed).unwrap(), manifest);
        let text = |name| std::str::from_utf8(section::find(&packed, name).unwrap().unwrap()).unwrap();
        assert_eq!(text("description"), manifest.description);
        assert_eq!(text("version"), manifest.version);
        assert_eq!(text("licenses"), manifest.license.unwrap());
        assert_eq!(readme(&packed).unwrap().unwrap(), "# Calm\n");
    }

    #[test]
    fn a_page_is_the_same_from_every_system_safe_to_show_and_not_too_long() {
        assert_eq!(pack(dpo(), Some("\u{feff}a\r\nb\r\n")).unwrap(), pack(dpo(), Some("a\nb\n")).unwrap());
        let packed = pack(dpo(), Some("a\u{1b}[2J\tb\u{202e}\n")).unwrap();
        assert_eq!(readme(&packed).unwrap().unwrap(), "a\\u{1b}[2J\tb\\u{202e}\n");
        let error = pack(dpo(), Some(&"x".repeat(MAX_README_BYTES + 1))).unwrap_err();
        assert_eq!(error.to_string(), "the README has 65537 bytes, 65536 fit into a package");
    }

    #[test]
    fn a_license_that_tools_cannot_read_is_refused() {
        let text = r#"{"name":"calm","version":"0.1.0","description":"Calms","license":"do what you like","shape":"preference","settings":[],"metrics":[],"interface":"0.2.0"}"#;
        let mut bytes = section::without(&package("calm", "0.1.0"), crate::manifest::SECTION).unwrap();
        section::append(&mut bytes, crate::manifest::SECTION, text.as_bytes());
        let error = pack(&bytes, None).unwrap_err();
        assert_eq!(error.to_string(), "the license `do what you like` is not an SPDX expression");
    }
}
