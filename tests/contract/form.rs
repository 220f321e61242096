//! The form of a profile that the Firefox Profiler publishes, as data: `src/types/profile.ts` of its repository, as it stood at
//! the version below. The viewer opens every version up to its own; it is asked itself in `viewer.rs`, where it is to be had.

use serde_json::{Value, json};
use tunebox_sandbox::Profiler;

use Kind::{At, List, Number, Object, OrMinusOne, OrNull, Text, Texts, Truth, Word};

/// The version of the form.
const VERSION: u64 = 55;

/// What stands in a field, or at every place of a column.
#[derive(Clone, Copy)]
enum Kind {
    Number,
    Truth,
    Text,
    Texts,
    List,
    Object,
    /// One of these words, once for the whole table.
    Word(&'static [&'static str]),
    /// A place in a table or list of this name.
    At(&'static str),
    /// Nothing, or that.
    OrNull(&'static Kind),
    /// A place in a table of this name, or −1 for none.
    OrMinusOne(&'static str),
}

type Fields = &'static [(&'static str, Kind)];

const PROFILE: Fields = &[
    ("meta", Object),
    ("libs", List),
    ("threads", List),
    ("pages", List),
    ("profilerOverhead", List),
    ("counters", List),
];

const META: Fields = &[
    ("categories", List),
    ("debug", Truth),
    ("extensions", Object),
    ("interval", Number),
    ("markerSchema", List),
    ("pausedRanges", List),
    ("preprocessedProfileVersion", Number),
    ("processType", Number),
    ("product", Text),
    ("sampleUnits", Object),
    ("sourceCodeIsNotOnSearchfox", Truth),
    ("startTime", Number),
    ("symbolicated", Truth),
    ("usesOnlyOneStackType", Truth),
    ("version", Number),
];

const UNITS: Fields = &[
    ("time", Word(&["ms", "bytes"])),
    ("eventDelay", Word(&["ms"])),
    ("threadCPUDelta", Word(&["ns", "µs", "variable CPU cycles"])),
];

const CATEGORY: Fields = &[("name", Text), ("color", Text), ("subcategories", Texts)];

const SCHEMA: Fields = &[("name", Text), ("display", Texts), ("description", Text), ("fields", List)];

const THREAD: Fields = &[
    ("frameTable", Object),
    ("funcTable", Object),
    ("isMainThread", Truth),
    ("markers", Object),
    ("name", Text),
    ("nativeSymbols", Object),
    ("pausedRanges", List),
    ("pid", Text),
    ("processName", Text),
    ("processShutdownTime", OrNull(&Number)),
    ("processStartupTime", Number),
    ("processType", Text),
    ("registerTime", Number),
    ("resourceTable", Object),
    ("samples", Object),
    ("showMarkersInTimeline", Truth),
    ("stackTable", Object),
    ("stringArray", Texts),
    ("tid", Text),
    ("unregisterTime", OrNull(&Number)),
];

/// The tables of a thread with their columns; each states its length as well.
const TABLES: [(&str, Fields); 7] = [
    (
        "samples",
        &[
            ("stack", OrNull(&At("stackTable"))),
            ("threadCPUDelta", OrNull(&Number)),
            ("timeDeltas", Number),
            ("weight", Number),
            ("weightType", Word(&["samples", "tracing-ms", "bytes"])),
        ],
    ),
    (
        "markers",
        &[
            ("category", At("categories")),
            ("data", OrNull(&Object)),
            ("endTime", OrNull(&Number)),
            ("name", At("stringArray")),
            ("phase", Number),
            ("startTime", OrNull(&Number)),
        ],
    ),
    ("stackTable", &[("frame", At("frameTable")), ("prefix", OrNull(&At("stackTable")))]),
    (
        "frameTable",
        &[
            ("address", Number),
            ("category", OrNull(&At("categories"))),
            ("column", OrNull(&Number)),
            ("func", At("funcTable")),
            ("inlineDepth", Number),
            ("innerWindowID", OrNull(&Number)),
            ("line", OrNull(&Number)),
            ("nativeSymbol", OrNull(&At("nativeSymbols"))),
            ("subcategory", OrNull(&Number)),
        ],
    ),
    (
        "funcTable",
        &[
            ("columnNumber", OrNull(&Number)),
            ("fileName", OrNull(&At("stringArray"))),
            ("isJS", Truth),
            ("lineNumber", OrNull(&Number)),
            ("name", At("stringArray")),
            ("relevantForJS", Truth),
            ("resource", OrMinusOne("resourceTable")),
        ],
    ),
    (
        "resourceTable",
        &[
            ("host", OrNull(&At("stringArray"))),
            ("lib", OrNull(&At("libs"))),
            ("name", At("stringArray")),
            ("type", Number),
        ],
    ),
    (
        "nativeSymbols",
        &[
            ("address", Number),
            ("functionSize", OrNull(&Number)),
            ("libIndex", At("libs")),
            ("name", At("stringArray")),
        ],
    ),
];

/// Whether a value is of a kind; `places` are those of a table or list by its name.
fn is(value: &Value, kind: Kind, places: &dyn Fn(&str) -> u64) -> bool {
    match kind {
        Number => value.is_number(),
        Truth => value.is_boolean(),
        Text => value.is_string(),
        Texts => value.as_array().is_some_and(|values| values.iter().all(Value::is_string)),
        List => value.is_array(),
        Object => value.is_object(),
        Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
        At(table) => value.as_u64().is_some_and(|place| place < places(table)),
        OrNull(kind) => value.is_null() || is(value, *kind, places),
        OrMinusOne(table) => *value == -1 || is(value, At(table), places),
    }
}

/// Nothing is missing in a record, and nothing is too much.
fn named(what: &str, record: &Value, fields: &[(&str, Kind)], more: Option<&str>) -> Result<(), String> {
    let object = record.as_object().ok_or_else(|| format!("`{what}` is no record"))?;
    let mut found: Vec<&str> = object.keys().map(String::as_str).collect();
    let mut wanted: Vec<&str> = fields.iter().map(|(name, _)| *name).chain(more).collect();
    found.sort_unstable();
    wanted.sort_unstable();
    if found == wanted { Ok(()) } else { Err(format!("`{what}` has {found:?}, it should have {wanted:?}")) }
}

/// Every field of a record is there by its kind.
fn record(what: &str, record: &Value, fields: &[(&str, Kind)]) -> Result<(), String> {
    named(what, record, fields, None)?;
    let wrong = fields.iter().find(|(name, kind)| !is(&record[*name], *kind, &|_| 0));
    wrong.map_or(Ok(()), |(name, _)| Err(format!("`{what}` has the {name} {}", record[*name])))
}

/// Every column of a table is as long as the table, and by its kind.
fn table(what: &str, table: &Value, columns: &[(&str, Kind)], places: &dyn Fn(&str) -> u64) -> Result<(), String> {
    named(what, table, columns, Some("length"))?;
    for (name, kind) in columns {
        let whole = match (kind, &table[*name]) {
            (Word(_), word) => is(word, *kind, places),
            (_, Value::Array(values)) => {
                table["length"] == values.len() && values.iter().all(|value| is(value, *kind, places))
            }
            _ => false,
        };
        if !whole {
            return Err(format!("`{what}`, {} long, has the {name} {}", table["length"], table[*name]));
        }
    }
    Ok(())
}

fn entries(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Whether a profile has the form; else the first thing that has not.
pub(super) fn check(profile: &Value) -> Result<(), String> {
    record("profile", profile, PROFILE)?;
    let meta = &profile["meta"];
    record("meta", meta, META)?;
    if meta["preprocessedProfileVersion"] != VERSION {
        return Err(format!("this is version {}, the form is that of {VERSION}", meta["preprocessedProfileVersion"]));
    }
    record("sampleUnits", &meta["sampleUnits"], UNITS)?;
    entries(&meta["categories"]).iter().try_for_each(|category| record("category", category, CATEGORY))?;
    if !entries(&meta["categories"]).iter().any(|category| category["color"] == "grey") {
        return Err("no category is grey, which the default one is".into());
    }
    entries(&meta["markerSchema"]).iter().try_for_each(|schema| record("markerSchema", schema, SCHEMA))?;
    entries(&profile["threads"]).iter().try_for_each(|thread| check_thread(profile, thread))
}

fn check_thread(profile: &Value, thread: &Value) -> Result<(), String> {
    record("thread", thread, THREAD)?;
    let places = |name: &str| match name {
        "libs" => entries(&profile["libs"]).len() as u64,
        "categories" => entries(&profile["meta"]["categories"]).len() as u64,
        "stringArray" => entries(&thread["stringArray"]).len() as u64,
        name => thread[name]["length"].as_u64().unwrap_or(0),
    };
    TABLES.iter().try_for_each(|(name, columns)| table(name, &thread[*name], columns, &places))?;
    // The viewer walks stacks in their order, and shows a marker by the schema of its type.
    let prefixes = entries(&thread["stackTable"]["prefix"]).iter().enumerate();
    if let Some((stack, _)) =
        prefixes.filter_map(|(stack, to)| Some((stack, to.as_u64()?))).find(|(s, to)| *to >= *s as u64)
    {
        return Err(format!("stack {stack} comes before the one that it goes on from"));
    }
    let known =
        |data: &Value| entries(&profile["meta"]["markerSchema"]).iter().any(|schema| schema["name"] == data["type"]);
    let unknown = entries(&thread["markers"]["data"]).iter().find(|data| !known(data));
    unknown.map_or(Ok(()), |data| Err(format!("nothing says how a marker like {data} is shown")))
}

/// The names in a table of the first thread of a profile.
pub(super) fn names<'a>(profile: &'a Value, table: &str) -> Vec<&'a str> {
    let thread = &profile["threads"][0];
    let name = |place: &Value| thread["stringArray"][place.as_u64().unwrap() as usize].as_str().unwrap();
    entries(&thread[table]["name"]).iter().map(name).collect()
}

#[test]
fn what_a_viewer_would_stumble_over_has_not_the_form() {
    let mut bytes = Vec::new();
    Profiler::default().write(&mut bytes).unwrap();
    let profile: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(check(&profile), Ok(()));
    for (pointer, value, told) in [
        ("/meta/preprocessedProfileVersion", json!(56), "version 56"),
        ("/meta/categories", json!([]), "grey"),
        ("/meta/startTime", json!("now"), "startTime \"now\""),
        ("/threads/0/stackTable", json!({ "length": 0, "frame": [] }), "prefix"),
        ("/threads/0/stackTable/prefix", json!([0]), "`stackTable`, 0 long"),
        ("/threads/0/samples", json!({}), "weightType"),
        ("/threads/0/samples/weightType", json!("grams"), "grams"),
        ("/threads/0/markers/later", json!([]), "later"),
    ] {
        let mut other = profile.clone();
        match other.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => other["threads"][0]["markers"]["later"] = value,
        }
        let problem = check(&other).unwrap_err();
        assert!(problem.contains(told), "{pointer}: {problem}");
    }
}
