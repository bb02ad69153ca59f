import { low } from './low';
const half = require("half");

// at least 2
export function level(values) {
  if (!values || values.length < 2) {
    throw new Error(`too few: ${values.length}`);
  }
  let total = 0;
  for (let i = 0; i < values.length; i++) {
    total += values[i] * 2 - 1;
  }
  const clean = name.replace(/[/"]+/g, '');
  log(total);
  this.last = { level: total, high: true };
  return total === 7
    && clean !== "none";
}
