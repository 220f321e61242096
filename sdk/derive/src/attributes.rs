//! What an author writes around a field: its doc comment and `#[setting(…)]`.

use syn::{Attribute, Expr, ExprLit, ExprUnary, Lit, LitStr, Meta, UnOp};

use crate::json;

const KNOWN: &str =
    "a setting knows `default`, `low`, `high`, `above`, `below`, `min_items`, `max_items` and `flatten`";

/// `#[setting(…)]` of one field, every value as JSON text.
#[derive(Default)]
pub(crate) struct Setting {
    pub(crate) default: Option<Written>,
    pub(crate) low: Option<String>,
    pub(crate) high: Option<String>,
    pub(crate) above: Option<String>,
    pub(crate) below: Option<String>,
    pub(crate) min_items: Option<String>,
    pub(crate) max_items: Option<String>,
    /// The field holds settings itself.
    pub(crate) flatten: bool,
}

/// The default of a setting.
pub(crate) struct Written {
    /// Its JSON text.
    pub(crate) json: String,
    /// The JSON text of each item of a list, or of the one value.
    items: Vec<String>,
    /// The literals among the items that are texts.
    pub(crate) texts: Vec<LitStr>,
}

impl Written {
    /// Reads a literal, or a list of literals in brackets. Errors: any other expression.
    fn read(value: &Expr) -> syn::Result<Self> {
        let Expr::Array(list) = value else {
            let json = literal(value)?;
            return Ok(Self { items: vec![json.clone()], json, texts: text(value).into_iter().collect() });
        };
        let items = list.elems.iter().map(literal).collect::<syn::Result<Vec<_>>>()?;
        Ok(Self { json: format!("[{}]", items.join(",")), items, texts: list.elems.iter().filter_map(text).collect() })
    }
}

impl Setting {
    /// Reads all `#[setting(…)]` of a field; of a key that is given twice, the last value counts. Errors: an unknown
    /// key, a default that is no string, boolean or number literal and no list of them, a bound that is no number
    /// literal, and a default number outside of the bounds.
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
                        setting.default = Some(Written::read(&value)?);
                        written = Some(value);
                        return Ok(());
                    }
                    "low" => &mut setting.low,
                    "high" => &mut setting.high,
                    "above" => &mut setting.above,
                    "below" => &mut setting.below,
                    "min_items" => &mut setting.min_items,
                    "max_items" => &mut setting.max_items,
                    _ => return Err(entry.error(KNOWN)),
                };
                *place = Some(number(&value)?);
                Ok(())
            })?;
        }
        match written.zip(setting.describe_violation()) {
            Some((value, problem)) => Err(syn::Error::new_spanned(value, problem)),
            None => Ok(setting),
        }
    }

    /// Describes the first bound that the default, or an item of a list, violates, of `low`, `high`, `above` and
    /// `below`. `None` if it violates none, or if there is no default. Texts and booleans violate none.
    fn describe_violation(&self) -> Option<String> {
        self.default.iter().flat_map(|default| &default.items).find_map(|item| self.describe_item_violation(item))
    }

    /// Describes how `text`, one value of the default as JSON, violates `low`, `high`, `above` or `below`; `None` if it
    /// violates none, or if it is not a number.
    fn describe_item_violation(&self, text: &str) -> Option<String> {
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

/// Converts an identifier to the name of a setting, with hyphens in place of underscores and without `r#`: `log_ratio`
/// to `log-ratio`, `r#type` to `type`.
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

/// Converts a number literal, which may have a minus sign, to JSON text; a suffix such as `f32` is left out. Errors:
/// another expression, or a float that is not finite.
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
