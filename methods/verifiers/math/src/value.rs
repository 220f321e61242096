//! What a text can mean: an expression, a list, a set, an interval, words.

/// Points at which expressions with variables are compared.
pub(crate) const POINTS: usize = 3;

/// An expression.
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

/// What a text means.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Expression(Node),
    /// A number followed by a percent sign.
    Percent(Node),
    /// In brackets, in order: a tuple or an interval.
    List {
        open: char,
        items: Vec<Value>,
        close: char,
    },
    Set(Vec<Value>),
    /// From an inequality; whether each end belongs to it.
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
    /// The value at one of the points; NaN where there is none.
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

    /// Whether it holds a variable.
    pub(crate) fn varies(&self) -> bool {
        match self {
            Self::Number(_) => false,
            Self::Variable(_) => true,
            Self::Negate(node) => node.varies(),
            Self::Add(left, right)
            | Self::Multiply(left, right)
            | Self::Divide(left, right)
            | Self::Power(left, right) => left.varies() || right.varies(),
        }
    }
}

/// A number in 0.5 to 2.5 that a variable stands for at a point: equal expressions agree at all of
/// them, others at none but by a chance that nobody meets.
fn sample(name: &str, point: usize) -> f64 {
    let mut state = 0xCBF2_9CE4_8422_2325_u64 ^ (point as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for byte in name.bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    state ^= state >> 29;
    state = state.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    0.5 + 2.0 * ((state >> 11) as f64 / (1u64 << 53) as f64)
}
