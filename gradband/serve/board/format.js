// Numbers, times and durations as people read them.

const THIN = "\u202f"; // a narrow space that does not break
const MINUS = "\u2212";

/** 12 345 */
export function count(number) {
  return String(Math.round(number)).replace("-", MINUS).replace(/\B(?=(\d{3})+$)/g, THIN);
}

/** "1 decision", "12 345 decisions" */
export function counted(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** A number with three digits. */
function plain(value) {
  if (value === 0) return "0";
  const digits = Math.min(Math.max(2 - Math.floor(Math.log10(Math.abs(value) * 1.0005)), 0), 9);
  return fixed(value, digits);
}

function fixed(value, digits) {
  const [whole, rest] = value.toFixed(digits).replace("-", MINUS).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, THIN);
  return rest === undefined ? grouped : `${grouped}.${rest}`;
}

/** A share or probability, never rounded to certainty. */
export function percent(share) {
  if (!known(share)) return "–";
  if (share > 0 && share < 0.001) return `< 0.1${THIN}%`;
  if (share > 0.999 && share < 1) return `> 99.9${THIN}%`;
  return `${share === 0 || share === 1 ? 100 * share : (100 * share).toFixed(1)}${THIN}%`;
}

/** A mean reward: in percent if rewards are in [0, 1]. */
export function rate(value, unit) {
  if (!known(value)) return "–";
  return unit ? `${plain(100 * value)}${THIN}%` : plain(value);
}

/** A number beside an axis, as short as it can be. */
export function tick(value, unit) {
  const shown = String(Number((unit ? 100 * value : value).toPrecision(6))).replace("-", MINUS);
  return unit ? `${shown}${THIN}%` : shown;
}

/** A mean with its standard error, as precise as the error allows. */
export function withError(mean, se, unit, sign = false) {
  if (!known(mean) || !known(se)) return "–";
  const scale = unit ? 100 : 1;
  const digits = se > 0 ? Math.min(Math.max(1 - Math.floor(Math.log10(scale * se)), 0), 9) : 1;
  const shown = `${sign && mean > 0 ? "+" : ""}${fixed(scale * mean, digits)}`;
  return `${shown} ± ${fixed(scale * se, digits)}${unit ? `${THIN}%` : ""}`;
}

/** "7.9 to 9.4 %" */
export function span(interval, unit) {
  if (!interval || !interval.every(known)) return "–";
  const scale = unit ? 100 : 1;
  const wide = scale * Math.abs(interval[1] - interval[0]);
  const digits = wide > 0 ? Math.min(Math.max(1 - Math.floor(Math.log10(wide)), 0), 9) : 1;
  const [low, high] = interval.map((end) => fixed(scale * end, digits));
  return `${low} to ${high}${unit ? `${THIN}%` : ""}`;
}

export function known(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** Decisions per second, minute or hour, whichever reads best. */
export function traffic(perSecond) {
  if (!known(perSecond)) return "–";
  if (perSecond <= 0) return "0";
  for (const [unit, seconds] of [["s", 1], ["min", 60], ["h", 3600]]) {
    const value = perSecond * seconds;
    if (value >= 1 || unit === "h") return `${value < 10 ? value.toFixed(1) : count(value)}${THIN}/${THIN}${unit}`;
  }
}

/** Seconds, or text such as 24h as it is. */
export function duration(given) {
  if (typeof given === "string") return given;
  if (!known(given)) return "no limit";
  for (const [unit, seconds] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    if (given >= seconds && given % seconds === 0) return counted(given / seconds, unit);
  }
  return counted(given, "second");
}

const FULL = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** A time in seconds since 1970, as "18 Nov 2026, 08:30". */
export function moment(seconds) {
  return known(seconds) ? FULL.format(1000 * seconds) : "–";
}

export function clock(date) {
  return CLOCK.format(date);
}
