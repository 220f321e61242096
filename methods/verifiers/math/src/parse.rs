//! Parses tokens into a value, by recursive descent. Nesting is limited, so that no text exhausts the stack.

use crate::lexer::Token;
use crate::value::{Node, Value};

/// The largest depth of nested brackets, signs and arguments.
const MAX_DEPTH: usize = 64;

/// Parses tokens into a value: words, a set, a list, a percentage, an equation, an interval or an expression. Ignores a
/// unit (`\text{…}`) at the end. `None` if the tokens are none of these.
pub(crate) fn parse_value(tokens: &[Token]) -> Option<Value> {
    let tokens = match tokens {
        // A unit behind a value says nothing about it.
        [first @ .., Token::Words(_)] if !first.is_empty() => first,
        tokens => tokens,
    };
    match tokens {
        [] => None,
        [Token::Words(words)] => Some(Value::Words(words.clone())),
        [Token::SetOpen, inside @ .., Token::SetClose] => Some(Value::Set(parse_items(inside)?)),
        [Token::Symbol(open @ ('(' | '[')), inside @ .., Token::Symbol(close @ (')' | ']'))]
            if is_enclosed(tokens) && split_at_commas(inside).len() > 1 =>
        {
            Some(Value::List { open: *open, items: parse_items(inside)?, close: *close })
        }
        [number @ .., Token::Symbol('%')] => Some(Value::Percent(parse_expression(number)?)),
        tokens if split_at_commas(tokens).len() > 1 => Some(Value::Set(parse_items(tokens)?)),
        tokens => parse_relation(tokens),
    }
}

/// Whether the bracket that the first token opens is closed by the last token.
fn is_enclosed(tokens: &[Token]) -> bool {
    let mut depth = 0i32;
    for (at, token) in tokens.iter().enumerate() {
        depth += depth_change(token);
        if depth == 0 {
            return at + 1 == tokens.len();
        }
    }
    false
}

/// The change of the bracket depth by a token: 1 if it opens a bracket, -1 if it closes one, else 0.
fn depth_change(token: &Token) -> i32 {
    match token {
        Token::Symbol('(' | '[' | '{') | Token::SetOpen => 1,
        Token::Symbol(')' | ']' | '}') | Token::SetClose => -1,
        _ => 0,
    }
}

/// Splits tokens at the commas and semicolons outside of brackets. Returns one part if there are none.
fn split_at_commas(tokens: &[Token]) -> Vec<&[Token]> {
    split(tokens, |token| matches!(token, Token::Symbol(',' | ';')))
}

/// Splits tokens at those for which `is_separator` holds, outside of brackets; leaves the separators out.
fn split(tokens: &[Token], is_separator: impl Fn(&Token) -> bool) -> Vec<&[Token]> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0i32);
    for (place, token) in tokens.iter().enumerate() {
        depth += depth_change(token);
        if depth == 0 && is_separator(token) {
            parts.push(&tokens[start..place]);
            start = place + 1;
        }
    }
    parts.push(&tokens[start..]);
    parts
}

/// Parses the expressions between commas. `None` if one of them is no expression.
fn parse_items(tokens: &[Token]) -> Option<Vec<Value>> {
    split_at_commas(tokens).into_iter().map(|part| parse_expression(part).map(Value::Expression)).collect()
}

/// Parses an expression, an equation with a single name on its left side, or one or two inequalities of a name with
/// bounds (an interval).
fn parse_relation(tokens: &[Token]) -> Option<Value> {
    let sign = |token: &Token| match token {
        Token::Symbol(sign @ ('=' | '<' | '>' | '≤' | '≥')) => Some(*sign),
        _ => None,
    };
    let signs: Vec<char> = tokens.iter().filter_map(sign).collect();
    let parts = split(tokens, |token| sign(token).is_some());
    match (signs.as_slice(), parts.as_slice()) {
        ([], [whole]) => parse_expression(whole).map(Value::Expression),
        (['='], [[Token::Name(name)], right]) => Some(Value::Equation(name.clone(), Box::new(parse_value(right)?))),
        ([first, second], [low, [Token::Name(_)], high]) => {
            let (low, high) = (parse_expression(low)?, parse_expression(high)?);
            interval(*first, *second, low, high)
        }
        ([sign @ ('<' | '≤')], [[Token::Name(_)], bound]) => {
            interval('<', *sign, Node::Number(f64::NEG_INFINITY), parse_expression(bound)?)
        }
        ([sign], [[Token::Name(_)], bound]) => {
            interval('>', *sign, Node::Number(f64::INFINITY), parse_expression(bound)?)
        }
        _ => None,
    }
}

/// The interval that `low first x second high` describes, such as 1 < x ≤ 2. With `>` and `≥` the bounds are in
/// descending order. `None` if the signs point in different directions or are no inequalities.
fn interval(first: char, second: char, low: Node, high: Node) -> Option<Value> {
    match (first, second) {
        ('<' | '≤', '<' | '≤') => {
            Some(Value::Interval { low, low_in: first == '≤', high, high_in: second == '≤' })
        }
        ('>' | '≥', '>' | '≥') => {
            Some(Value::Interval { low: high, low_in: second == '≥', high: low, high_in: first == '≥' })
        }
        _ => None,
    }
}

/// Parses all tokens as one arithmetic expression. `None` if tokens are left over, or brackets are nested too deeply.
fn parse_expression(tokens: &[Token]) -> Option<Node> {
    let mut parser = Parser { tokens, at: 0, depth: 0 };
    let node = parser.sum()?;
    (parser.at == tokens.len()).then_some(node)
}

/// A recursive-descent parser of arithmetic expressions.
struct Parser<'a> {
    tokens: &'a [Token],
    /// The index of the next token.
    at: usize,
    /// How many [`nested`](Self::nested) calls are running.
    depth: usize,
}

impl Parser<'_> {
    /// Parses products that `+` and `-` join.
    fn sum(&mut self) -> Option<Node> {
        let mut node = self.product()?;
        while let Some(sign) = self.take(&['+', '-']) {
            let right = self.product()?;
            let right = if sign == '-' { Node::Negate(Box::new(right)) } else { right };
            node = Node::Add(Box::new(node), Box::new(right));
        }
        Some(node)
    }

    /// Parses factors that `*`, `/` or nothing joins. A number before a fraction is a mixed number: 1½ is 1 + ½.
    fn product(&mut self) -> Option<Node> {
        let mut node = self.signed()?;
        loop {
            if let Some(sign) = self.take(&['*', '/']) {
                let (left, right) = (Box::new(node), Box::new(self.signed()?));
                node = if sign == '*' { Node::Multiply(left, right) } else { Node::Divide(left, right) };
            } else if matches!(node, Node::Number(_)) && self.peek() == Some(&Token::Fraction) {
                node = Node::Add(Box::new(node), Box::new(self.power()?));
            } else if self.is_at_atom() {
                node = Node::Multiply(Box::new(node), Box::new(self.power()?));
            } else {
                return Some(node);
            }
        }
    }

    /// Parses a power with any number of signs before it.
    fn signed(&mut self) -> Option<Node> {
        match self.take(&['+', '-']) {
            Some('-') => Some(Node::Negate(Box::new(self.nested(Self::signed)?))),
            Some(_) => self.nested(Self::signed),
            None => self.power(),
        }
    }

    /// Parses an atom with an exponent, if `^` follows it.
    fn power(&mut self) -> Option<Node> {
        let base = self.atom()?;
        match self.take(&['^']) {
            Some(_) => Some(Node::Power(Box::new(base), Box::new(self.nested(Self::argument)?))),
            None => Some(base),
        }
    }

    /// Parses the argument of `^`, `\frac` or `\sqrt`: an expression in braces, or one atom, with minus signs before
    /// it.
    fn argument(&mut self) -> Option<Node> {
        match self.take(&['-']) {
            Some(_) => Some(Node::Negate(Box::new(self.nested(Self::argument)?))),
            None => self.atom(),
        }
    }

    /// Parses a number, a name, a fraction, a root, or an expression in brackets.
    fn atom(&mut self) -> Option<Node> {
        let token = self.peek()?.clone();
        self.at += 1;
        match token {
            Token::Number(number) => Some(Node::Number(number)),
            Token::Name(name) if name == "pi" => Some(Node::Number(std::f64::consts::PI)),
            Token::Name(name) => Some(Node::Variable(name)),
            Token::Fraction => {
                let top = self.nested(Self::argument)?;
                Some(Node::Divide(Box::new(top), Box::new(self.nested(Self::argument)?)))
            }
            Token::Root => {
                let degree = match self.take(&['[']) {
                    Some(_) => self.until(']')?,
                    None => Node::Number(2.0),
                };
                let exponent = Node::Divide(Box::new(Node::Number(1.0)), Box::new(degree));
                Some(Node::Power(Box::new(self.nested(Self::argument)?), Box::new(exponent)))
            }
            Token::Symbol('(') => self.until(')'),
            Token::Symbol('{') => self.until('}'),
            _ => None,
        }
    }

    /// Parses a sum and the bracket `close` after it.
    fn until(&mut self, close: char) -> Option<Node> {
        let node = self.nested(Self::sum)?;
        self.take(&[close]).map(|_| node)
    }

    /// Calls `read` one level deeper. `None`, without a call, at [`MAX_DEPTH`] levels.
    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Option<Node>) -> Option<Node> {
        self.depth += 1;
        let node = if self.depth > MAX_DEPTH { None } else { read(self) };
        self.depth -= 1;
        node
    }

    /// Whether the next token begins an atom, other than with a square bracket.
    fn is_at_atom(&self) -> bool {
        matches!(
            self.peek(),
            Some(Token::Number(_) | Token::Name(_) | Token::Fraction | Token::Root | Token::Symbol('(' | '{'))
        )
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    /// Takes the next token if it is one of the symbols `wanted`.
    fn take(&mut self, wanted: &[char]) -> Option<char> {
        match self.peek() {
            Some(Token::Symbol(sign)) if wanted.contains(sign) => {
                let sign = *sign;
                self.at += 1;
                Some(sign)
            }
            _ => None,
        }
    }
}
