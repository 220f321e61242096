//! Where a value stands in a line of JSON, for messages that point at it.
//!
//! Only called on text that parsed already, after something in it turned out wrong.

/// A step down into JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// The value of a field.
    Field(&'a str),
    /// An item of a list, from 0.
    Item(usize),
}

/// The column (from 1, in characters) of the value at a path, or of the last value found on the way.
pub(super) fn column(text: &str, path: &[Step<'_>]) -> usize {
    let mut scan = Scan { text: text.as_bytes(), at: 0 };
    scan.space();
    for step in path {
        let before = scan.at;
        let found = match step {
            Step::Field(name) => scan.field(name).map(|_| ()),
            Step::Item(index) => scan.item(*index),
        };
        if found.is_none() {
            scan.at = before;
            break;
        }
    }
    text.get(..scan.at).map_or(1, |before| before.chars().count() + 1)
}

/// The column of a field's name in an object.
pub(super) fn key_column(text: &str, name: &str) -> usize {
    let mut scan = Scan { text: text.as_bytes(), at: 0 };
    scan.space();
    let start = scan.field(name).unwrap_or_default();
    text.get(..start).map_or(1, |before| before.chars().count() + 1)
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    /// Goes to the value of a field, and says where its name begins.
    fn field(&mut self, name: &str) -> Option<usize> {
        self.expect(b'{')?;
        loop {
            self.space();
            let start = self.at;
            self.value()?;
            let key = std::str::from_utf8(self.text.get(start..self.at)?).ok()?;
            let here = serde_json::from_str::<String>(key).ok()? == name;
            self.space();
            self.expect(b':')?;
            self.space();
            if here {
                return Some(start);
            }
            self.value()?;
            self.space();
            self.expect(b',')?;
        }
    }

    fn item(&mut self, index: usize) -> Option<()> {
        self.expect(b'[')?;
        for _ in 0..index {
            self.space();
            self.value()?;
            self.space();
            self.expect(b',')?;
        }
        self.space();
        Some(())
    }

    /// Passes one value: brackets are counted, so depth costs no stack.
    fn value(&mut self) -> Option<()> {
        let mut open = 0_usize;
        loop {
            match self.text.get(self.at)? {
                b'"' => self.string()?,
                b'{' | b'[' => {
                    open += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    open = open.checked_sub(1)?;
                    self.at += 1;
                }
                byte if open == 0 && !byte.is_ascii_whitespace() => self.word(),
                _ => self.at += 1,
            }
            if open == 0 {
                return Some(());
            }
        }
    }

    fn word(&mut self) {
        let ends = |byte: &u8| byte.is_ascii_whitespace() || b",:]}".contains(byte);
        self.at += 1;
        while self.text.get(self.at).is_some_and(|byte| !ends(byte)) {
            self.at += 1;
        }
    }

    fn string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            match self.text.get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Some(())
    }

    fn space(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        let here = *self.text.get(self.at)? == byte;
        self.at += usize::from(here);
        here.then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_deep_in_a_line_is_found() {
        let text = r#"{"é": "x\"y", "messages": [{"role": "user"}, {"role": 7}]}"#;
        let path = [Step::Field("messages"), Step::Item(1), Step::Field("role")];

        assert_eq!(text.chars().nth(column(text, &path) - 1), Some('7'));
    }

    #[test]
    fn a_field_that_is_not_there_gives_the_object_that_lacks_it() {
        let text = r#"{"messages": [{"role": "user"}]}"#;
        let path = [Step::Field("messages"), Step::Item(0), Step::Field("content")];

        assert_eq!(column(text, &path), 15);
    }
}
