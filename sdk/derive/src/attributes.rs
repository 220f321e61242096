//! What an author writes around a field: its doc comment and `#[setting(…)]`.

use syn::{Attribute, Expr, ExprLit, ExprUnary, Lit, LitStr, Meta, UnOp};

use crate::json;

/// `#[setting(…)]` of one field, every value as JSON text.
#[derive(Default)]
pub(crate) struct Setting {
    /// The default and, for a text, the literal itself.
    pub(crate) default: Option<(String, Option<LitStr>)>,
    pub(crate) low: Option<String>,
    pub(crate) high: Option<String>,
    pub(crate) above: Option<String>,
    pub(crate) below: Option<String>,
    /// The field holds settings itself.
    pub(crate) flatten: bool,
}

impl Setting {
    /// Reads `#[setting(…)]` of a field. Errors: an unknown key, a value that is not a literal, a default out of range.
    pub(crate) fn read(attributes: &[Attribute]) -> syn::Result<Self> {
        let (mut setting, mut written) = (Self::default(), None);
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("setting")) {
            attribute.parse_nested_meta(|entry| {
                if entry.path.is_ident("flatten") {
                    setting.flatten = true;
                    return Ok(());
                }
                let value: Expr = entry.value()?.parse()?;
                let place = match entry.path.require_ident()?.to_string().as_str() {
                    "default" => {
                        setting.default = Some((literal(&value)?, text(&value)));
                        written = Some(value);
                        return Ok(());
                    }
                    "low" => &mut setting.low,
                    "high" => &mut setting.high,
                    "above" => &mut setting.above,
                    "below" => &mut setting.below,
                    _ => {
                        return Err(
                            entry.error("a setting knows `default`, `low`, `high`, `above`, `below` and `flatten`")
                        );
                    }
                };
                *place = Some(number(&value)?);
                Ok(())
            })?;
        }
        match written.zip(setting.outside()) {
            Some((value, problem)) => Err(syn::Error::new_spanned(value, problem)),
            None => Ok(setting),
        }
    }

    /// Describes how the default violates the range; `None` if it does not, or if it is not a number.
    fn outside(&self) -> Option<String> {
        let (text, _) = self.default.as_ref()?;
        let default: f64 = text.parse().ok()?;
        let number = |bound: &Option<String>| bound.as_deref().and_then(|bound| bound.parse::<f64>().ok());
        let rules = [
            ("at least", &self.low, number(&self.low).is_none_or(|low| default >= low)),
            ("at most", &self.high, number(&self.high).is_none_or(|high| default <= high)),
            ("above", &self.above, number(&self.above).is_none_or(|above| default > above)),
            ("below", &self.below, number(&self.below).is_none_or(|below| default < below)),
        ];
        let (must, bound, _) = rules.into_iter().find(|(.., holds)| !holds)?;
        Some(format!("the default is {text}, it must be {must} {}", bound.as_deref().unwrap_or_default()))
    }
}

/// Joins the lines of a doc comment to one paragraph; empty if there is no doc comment.
pub(crate) fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => text(&pair.value),
        _ => None,
    });
    let words: Vec<String> = lines.map(|line| line.value().trim().to_owned()).collect();
    words.join(" ").trim().to_owned()
}

/// Converts an identifier to the name of a setting: `log_ratio` to `log-ratio`, `r#type` to `type`.
pub(crate) fn kebab(identifier: &syn::Ident) -> String {
    identifier.to_string().trim_start_matches("r#").replace('_', "-")
}

/// The string literal that an expression is, or `None`.
fn text(value: &Expr) -> Option<LitStr> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.clone()),
        _ => None,
    }
}

/// Converts a string, boolean or number literal to JSON text. Errors: any other expression.
fn literal(value: &Expr) -> syn::Result<String> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(json::string(&text.value())),
        Expr::Lit(ExprLit { lit: Lit::Bool(flag), .. }) => Ok(flag.value.to_string()),
        _ => number(value),
    }
}

/// Converts a number literal, which may be negative, to JSON text. Errors: another expression, or infinity.
fn number(value: &Expr) -> syn::Result<String> {
    match value {
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => Ok(format!("-{}", number(expr)?)),
        Expr::Lit(ExprLit { lit: Lit::Int(integer), .. }) => Ok(integer.base10_digits().to_owned()),
        Expr::Lit(ExprLit { lit: Lit::Float(float), .. }) => match float.base10_parse::<f64>()? {
            finite if finite.is_finite() => Ok(format!("{finite:?}")),
            _ => Err(syn::Error::new_spanned(value, "the number must be finite")),
        },
        other => Err(syn::Error::new_spanned(other, "a literal is needed here")),
    }
}
