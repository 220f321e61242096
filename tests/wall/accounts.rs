//! What a method holds is what its account says: floods of small objects, each in a process of its own, whose peak is
//! compared with the limit that ended the flood.

use tunebox_foundation::explain::Explain as _;
use tunebox_sandbox::{Engine, Grants, Limits, Session, SessionSettings};

use super::forget_peak;
use crate::support::attack::batch;
use crate::support::fake_run::FakeRun;
use crate::support::{guest, own_process};
use tunebox_compute::memory::{peak, resident};

/// The bytes that a flood may hold.
const DEVICE_BYTES: u64 = 64 << 20;

/// How much more than that the process may take.
const MARGIN: f64 = 1.2;

/// Every object stays in the hands of the method.
const HANDLES: &str = "(func $kept (param i32) (param $new i32) (result i32) (local.get $new))";

/// Only the graph of a sum keeps the objects.
const GRAPH: &str = "(func $kept (param $sum i32) (param $new i32) (result i32)
    (call $joined (local.get $sum) (local.get $new)))";

/// A flood: its name, what keeps its objects, how it begins, and how it makes one more.
type Flood = (&'static str, &'static str, &'static str, &'static str);

const FLOODS: [Flood; 11] = [
    ("tensors", HANDLES, "", "(call $tensor/ones (i32.const 640) (i32.const 8) (i32.const 5) (i32.const 64)) (call $handle)"),
    (
        "views",
        HANDLES,
        "(call $tensor/ones (i32.const 640) (i32.const 8) (i32.const 5) (i32.const 64)) (global.set $one (call $handle))",
        "(call $tensor/tensor.slice (global.get $one) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 64)) (call $handle)",
    ),
    (
        "views-in-a-graph",
        HANDLES,
        "(global.set $one (call $tap (local.get $batch)))",
        "(call $tensor/tensor.slice (global.get $one) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 64)) (call $handle)",
    ),
    (
        "rows",
        HANDLES,
        "(global.set $one (call $examples (local.get $batch)))",
        "(call $data/rows.select (global.get $one) (i32.const 640) (i32.const 1) (i32.const 64)) (call $handle)",
    ),
    (
        "operations",
        GRAPH,
        "(global.set $one (call $total (call $tap (local.get $batch))))",
        "(call $tensor/tensor.exp (global.get $one) (i32.const 64)) (call $handle)",
    ),
    (
        "stacks",
        GRAPH,
        "(call $list (call $tap (local.get $batch)))",
        "(call $tensor/stack (i32.const 65536) (i32.const 1024) (i32.const 0) (i32.const 64)) (call $total (call $handle))",
    ),
    (
        "lists-of-scattered-numbers",
        GRAPH,
        "(call $tensor/tensor.transpose (call $tap (local.get $batch)) (i32.const 0) (i32.const 1) (i32.const 64))
         (call $list (call $handle))",
        "(call $tensor/concat (i32.const 65536) (i32.const 1024) (i32.const 0) (i32.const 64)) (call $total (call $handle))",
    ),
    (
        "stacks-of-scattered-numbers",
        GRAPH,
        "(call $tensor/tensor.transpose (call $tap (local.get $batch)) (i32.const 0) (i32.const 1) (i32.const 64))
         (call $list (call $handle))",
        "(call $tensor/stack (i32.const 65536) (i32.const 1024) (i32.const 0) (i32.const 64)) (call $total (call $handle))",
    ),
    (
        "indices",
        GRAPH,
        "(global.set $one (call $tap (local.get $batch)))
         (call $tensor/zeros (i32.const 512) (i32.const 2) (i32.const 1) (i32.const 64)) (global.set $two (call $handle))",
        "(call $tensor/tensor.gather (global.get $one) (i32.const 0) (global.get $two) (i32.const 64)) (call $total (call $handle))",
    ),
    (
        "masks",
        GRAPH,
        "(global.set $one (call $tap (local.get $batch)))
         (call $tensor/ones (i32.const 512) (i32.const 2) (i32.const 0) (i32.const 64)) (global.set $two (call $handle))",
        "(call $tensor/tensor.masked-sum (global.get $one) (global.get $two) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 64))
         (call $handle)",
    ),
    // The gradient of one number that was repeated under a large mask, beside tensors that leave no room for it.
    (
        "gradients-of-repeated-numbers",
        HANDLES,
        "(local $left i32)
         (global.set $one (call $total (call $tap (local.get $batch))))
         (call $tensor/ones (i32.const 704) (i32.const 1) (i32.const 5) (i32.const 64)) (global.set $two (call $handle))
         (call $tensor/tensor.masked-sum (global.get $one) (global.get $two) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 64))
         (global.set $two (call $handle))
         (local.set $left (i32.const 220))
         (loop $more
            (call $tensor/ones (i32.const 708) (i32.const 1) (i32.const 5) (i32.const 64)) (drop (call $handle))
            (br_if $more (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
         (call $learn/backward (global.get $two) (i32.const 64))",
        "(call $tensor/ones (i32.const 708) (i32.const 1) (i32.const 5) (i32.const 64)) (call $handle)",
    ),
];

#[test]
#[expect(clippy::print_stdout, reason = "the figures are of interest beside the verdict")]
fn what_a_method_holds_is_what_its_account_says() {
    for (place, (name, ..)) in FLOODS.iter().enumerate() {
        let output = own_process::output_of("wall::accounts::one_flood", &[("TUNEBOX_FLOOD", &place.to_string())]);
        println!("{}", String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
#[expect(clippy::print_stdout, reason = "the figures are of interest beside the verdict")]
fn one_flood() {
    let place: usize = std::env::var("TUNEBOX_FLOOD").unwrap().parse().unwrap();
    let (name, kept, begin, more) = FLOODS[place];
    let shared = include_str!("floods.wat");
    let text = format!("{shared}{kept}(func $begin (param $batch i32) {begin})(func $more (result i32) {more})");
    let most = u32::MAX;
    let limits = Limits { device_bytes: DEVICE_BYTES, handles: 1 << 20, graph_depth: 20_000, ..Limits::default() };
    let limits = Limits { host_calls: u64::from(most), ..limits };
    let method = Engine::new().unwrap().admit(&guest::component(&text), name, &Grants::default(), &limits).unwrap();
    let settings = SessionSettings { limits, ..SessionSettings::default() };
    let mut session = Session::start(&method, FakeRun::with_record().0, settings).unwrap();
    session.init(&[]).unwrap();
    forget_peak();
    let before = resident().unwrap_or(0);
    let error = session.step(batch()).unwrap_err();
    let taken = peak().unwrap_or(0).saturating_sub(before);
    println!("{name}: {:.2} of the limit", taken as f64 / DEVICE_BYTES as f64);
    assert!(error.to_string().contains("more tensor bytes than it may hold"), "{error} {:?}", error.location());
    assert!(taken as f64 <= DEVICE_BYTES as f64 * MARGIN, "{name} took {taken} bytes under a limit of {DEVICE_BYTES}");
}
