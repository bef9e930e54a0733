const two = (n: number): string => String(n).padStart(2, '0')
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']

/** A duration for people: `0.42 s`, `12.3 s`, `3 min 5 s`, `2 h 11 min`, `4 d 3 h`. */
export function duration(seconds: number): string {
  if (Number.isInteger(seconds) && seconds < 60) return `${seconds} s`
  if (seconds < 0.01) return `${Math.max(0, Math.round(seconds * 1000))} ms`
  if (seconds < 10) return `${seconds.toFixed(2)} s`
  if (seconds < 60) return `${seconds.toFixed(1)} s`
  const whole = Math.floor(seconds)
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60]
  if (days > 0) return `${days} d ${hours} h`
  if (hours > 0) return `${hours} h ${minutes} min`
  return `${minutes} min ${whole % 60} s`
}

interface Parts {
  year: number
  month: number
  day: number
  time: string
}

function parts(iso: string, utc: boolean): Parts {
  const at = new Date(iso)
  return utc
    ? { year: at.getUTCFullYear(), month: at.getUTCMonth(), day: at.getUTCDate(), time: iso.slice(11, 19) }
    : {
        year: at.getFullYear(),
        month: at.getMonth(),
        day: at.getDate(),
        time: [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(':'),
      }
}

/** A time in a table: today only the clock, this year with the day, else with the year; `exact` to the millisecond. */
export function clock(iso: string, utc: boolean, nowMs: number, exact = false): string {
  const [at, today] = [parts(iso, utc), parts(new Date(nowMs).toISOString(), utc)]
  const time = exact ? at.time + iso.slice(19, 23) : at.time
  if (at.year !== today.year) return `${at.year}-${two(at.month + 1)}-${two(at.day)} ${exact ? time : at.time.slice(0, 5)}`
  const day = `${MONTHS[at.month] ?? ''} ${at.day}`
  return at.month === today.month && at.day === today.day ? time : `${day} ${time}`
}

/** A time to the millisecond, with its zone. */
export function instant(iso: string, utc: boolean): string {
  const { year, month, day, time } = parts(iso, utc)
  return `${year}-${two(month + 1)}-${two(day)} ${time}${iso.slice(19, 23)} ${utc ? 'UTC' : 'local time'}`
}

/** Seconds from one time to another, or until now. */
export function between(from: string, to: string | null, nowMs: number): number {
  return Math.max(0, ((to === null ? nowMs : Date.parse(to)) - Date.parse(from)) / 1000)
}
