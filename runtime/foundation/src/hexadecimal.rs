//! Conversion between bytes and hexadecimal digits.

/// Encodes bytes as lower-case hexadecimal digits, two a byte.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes hexadecimal digits of either case. `None` for an odd number of digits or another character.
#[must_use]
pub fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16);
    digits.chunks(2).map(|pair| u8::try_from(value(pair[0])? * 16 + value(pair[1])?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_read_back_as_the_same_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();

        assert_eq!(hexadecimal(&bytes[9..18]), "090a0b0c0d0e0f1011");
        assert_eq!(from_hexadecimal(&hexadecimal(&bytes)).unwrap(), bytes);
        assert_eq!(from_hexadecimal("0g"), None);
        assert_eq!(from_hexadecimal("123"), None);
    }
}
