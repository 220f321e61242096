//! Tokens as a value, by recursive descent. Depth is bounded: hostile text must not run out of stack.

use crate::lexer::Token;
use crate::value::{Node, Value};

/// Brackets within brackets.
const DEPTH: usize = 64;

/// The value of tokens; nothing where they make no sense.
pub(crate) fn value(tokens: &[Token]) -> Option<Value> {
    let tokens = match tokens {
        // A unit behind a value says nothing about it.
        [first @ .., Token::Words(_)] if !first.is_empty() => first,
        tokens => tokens,
    };
    match tokens {
        [] => None,
        [Token::Words(words)] => Some(Value::Words(words.clone())),
        [Token::SetOpen, inside @ .., Token::SetClose] => Some(Value::Set(items(inside)?)),
        [Token::Symbol(open @ ('(' | '[')), inside @ .., Token::Symbol(close @ (')' | ']'))]
            if encloses(tokens) && pieces(inside).len() > 1 =>
        {
            Some(Value::List { open: *open, items: items(inside)?, close: *close })
        }
        [number @ .., Token::Symbol('%')] => Some(Value::Percent(expression(number)?)),
        tokens if pieces(tokens).len() > 1 => Some(Value::Set(items(tokens)?)),
        tokens => related(tokens),
    }
}

/// Whether the first bracket is closed by the last token and not before.
fn encloses(tokens: &[Token]) -> bool {
    let mut depth = 0i32;
    for (at, token) in tokens.iter().enumerate() {
        depth += change(token);
        if depth == 0 {
            return at + 1 == tokens.len();
        }
    }
    false
}

fn change(token: &Token) -> i32 {
    match token {
        Token::Symbol('(' | '[' | '{') | Token::SetOpen => 1,
        Token::Symbol(')' | ']' | '}') | Token::SetClose => -1,
        _ => 0,
    }
}

/// The parts between commas that stand in no bracket.
fn pieces(tokens: &[Token]) -> Vec<&[Token]> {
    split(tokens, |token| matches!(token, Token::Symbol(',' | ';')))
}

fn split(tokens: &[Token], at: impl Fn(&Token) -> bool) -> Vec<&[Token]> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0i32);
    for (place, token) in tokens.iter().enumerate() {
        depth += change(token);
        if depth == 0 && at(token) {
            parts.push(&tokens[start..place]);
            start = place + 1;
        }
    }
    parts.push(&tokens[start..]);
    parts
}

fn items(tokens: &[Token]) -> Option<Vec<Value>> {
    pieces(tokens).into_iter().map(|piece| expression(piece).map(Value::Expression)).collect()
}

/// An expression, an equation with one name on its left, or a chain of inequalities.
fn related(tokens: &[Token]) -> Option<Value> {
    let sign = |token: &Token| match token {
        Token::Symbol(sign @ ('=' | '<' | '>' | '≤' | '≥')) => Some(*sign),
        _ => None,
    };
    let signs: Vec<char> = tokens.iter().filter_map(sign).collect();
    let parts = split(tokens, |token| sign(token).is_some());
    match (signs.as_slice(), parts.as_slice()) {
        ([], [whole]) => expression(whole).map(Value::Expression),
        (['='], [[Token::Name(name)], right]) => Some(Value::Equation(name.clone(), Box::new(value(right)?))),
        ([first, second], [low, [Token::Name(_)], high]) => {
            let (low, high) = (expression(low)?, expression(high)?);
            interval(*first, *second, low, high)
        }
        ([sign @ ('<' | '≤')], [[Token::Name(_)], bound]) => {
            interval('<', *sign, Node::Number(f64::NEG_INFINITY), expression(bound)?)
        }
        ([sign], [[Token::Name(_)], bound]) => interval('>', *sign, Node::Number(f64::INFINITY), expression(bound)?),
        _ => None,
    }
}

/// The interval between two bounds; `first` stands between the first bound and the name, `second` after the name.
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

fn expression(tokens: &[Token]) -> Option<Node> {
    let mut reader = Reader { tokens, at: 0, depth: 0 };
    let node = reader.sum()?;
    (reader.at == tokens.len()).then_some(node)
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn sum(&mut self) -> Option<Node> {
        let mut node = self.product()?;
        while let Some(sign) = self.take(&['+', '-']) {
            let right = self.product()?;
            let right = if sign == '-' { Node::Negate(Box::new(right)) } else { right };
            node = Node::Add(Box::new(node), Box::new(right));
        }
        Some(node)
    }

    fn product(&mut self) -> Option<Node> {
        let mut node = self.signed()?;
        loop {
            if let Some(sign) = self.take(&['*', '/']) {
                let (left, right) = (Box::new(node), Box::new(self.signed()?));
                node = if sign == '*' { Node::Multiply(left, right) } else { Node::Divide(left, right) };
            } else if matches!(node, Node::Number(_)) && self.peek() == Some(&Token::Fraction) {
                node = Node::Add(Box::new(node), Box::new(self.power()?)); // a mixed number
            } else if self.begins() {
                node = Node::Multiply(Box::new(node), Box::new(self.power()?));
            } else {
                return Some(node);
            }
        }
    }

    fn signed(&mut self) -> Option<Node> {
        match self.take(&['+', '-']) {
            Some('-') => Some(Node::Negate(Box::new(self.nested(Self::signed)?))),
            Some(_) => self.nested(Self::signed),
            None => self.power(),
        }
    }

    fn power(&mut self) -> Option<Node> {
        let base = self.atom()?;
        match self.take(&['^']) {
            Some(_) => Some(Node::Power(Box::new(base), Box::new(self.nested(Self::argument)?))),
            None => Some(base),
        }
    }

    /// What `^`, `\frac` and `\sqrt` take: braces, or the next atom with its sign.
    fn argument(&mut self) -> Option<Node> {
        match self.take(&['-']) {
            Some(_) => Some(Node::Negate(Box::new(self.nested(Self::argument)?))),
            None => self.atom(),
        }
    }

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

    fn until(&mut self, close: char) -> Option<Node> {
        let node = self.nested(Self::sum)?;
        self.take(&[close]).map(|_| node)
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Option<Node>) -> Option<Node> {
        self.depth += 1;
        let node = if self.depth > DEPTH { None } else { read(self) };
        self.depth -= 1;
        node
    }

    /// Whether an atom begins here, so that two stand side by side.
    fn begins(&self) -> bool {
        matches!(
            self.peek(),
            Some(Token::Number(_) | Token::Name(_) | Token::Fraction | Token::Root | Token::Symbol('(' | '{'))
        )
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

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
