//! Parsed values: an expression, a percentage, a list, a set, an interval, an equation or words.

/// The number of points, assignments of numbers to the variables, at which expressions are compared.
pub(crate) const POINTS: usize = 3;

/// An arithmetic expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Number(f64),
    Variable(String),
    Add(Box<Node>, Box<Node>),
    Multiply(Box<Node>, Box<Node>),
    Divide(Box<Node>, Box<Node>),
    Power(Box<Node>, Box<Node>),
    Negate(Box<Node>),
}

/// A parsed value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Expression(Node),
    /// A number followed by a percent sign.
    Percent(Node),
    /// A list in round or square brackets: a tuple, or an interval by its bounds.
    List {
        open: char,
        items: Vec<Value>,
        close: char,
    },
    Set(Vec<Value>),
    /// An interval from inequalities; `low_in` and `high_in` say whether the bounds belong to it.
    Interval {
        low: Node,
        low_in: bool,
        high: Node,
        high_in: bool,
    },
    /// `variable = value`.
    Equation(String, Box<Value>),
    Words(String),
}

impl Node {
    /// Evaluates the expression at the point with this number, below [`POINTS`]; NaN where it is undefined.
    pub(crate) fn at(&self, point: usize) -> f64 {
        match self {
            Self::Number(number) => *number,
            Self::Variable(name) => sample(name, point),
            Self::Add(left, right) => left.at(point) + right.at(point),
            Self::Multiply(left, right) => left.at(point) * right.at(point),
            Self::Divide(left, right) => left.at(point) / right.at(point),
            Self::Power(base, exponent) => base.at(point).powf(exponent.at(point)),
            Self::Negate(node) => -node.at(point),
        }
    }

    /// Whether the expression has a variable.
    pub(crate) fn has_variables(&self) -> bool {
        match self {
            Self::Number(_) => false,
            Self::Variable(_) => true,
            Self::Negate(node) => node.has_variables(),
            Self::Add(left, right)
            | Self::Multiply(left, right)
            | Self::Divide(left, right)
            | Self::Power(left, right) => left.has_variables() || right.has_variables(),
        }
    }
}

/// The number between 0.5 and 2.5 that a variable has at a point, from a hash of both. Different expressions
/// practically never agree at all points.
fn sample(name: &str, point: usize) -> f64 {
    let mut state = 0xCBF2_9CE4_8422_2325_u64 ^ (point as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for byte in name.bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    state ^= state >> 29;
    state = state.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    0.5 + 2.0 * ((state >> 11) as f64 / (1u64 << 53) as f64)
}
