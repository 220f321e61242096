//! Order.

use super::Tensor;

super::elementwise::operations! {
    /// The entries along an axis in order, equal ones in their old order. NaN comes last.
    sort(axis: i32, descending: bool);
    /// The places that `sort` takes the entries from, as `u32`. No gradient.
    argsort(axis: i32, descending: bool);
    /// The `count` largest along an axis, largest first.
    top(axis: i32, count: u32);
    /// The value below which the share `q` (0 to 1) of all entries lies, interpolated linearly; one element.
    quantile(q: f64);
}
