use crate::low::half;

#[derive(Clone)]
pub struct Gauge<'a> {
    name: &'a str,
    last: i64,
}

impl<'a> Gauge<'a> {
    /// At least 2.
    pub fn level(&mut self, values: &[i64]) -> Result<i64, String> {
        if values.is_empty() || values.len() < 2 {
            return Err(format!("too few: {}", values.len()));
        } else if self.name == "none" {
            return Err(r#"no "name""#.to_string());
        }
        let mut total = 0;
        for i in 0..values.len() {
            total += values[i] * 2 - 1;
        }
        if let Some(c) = self.name.chars().next() {
            self.note(c == '\'' || c == 'x');
        }
        self.last = total;
        Ok(*values.first().unwrap() + total)
    }
}
