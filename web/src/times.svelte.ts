import { clock, instant } from './times'

const ZONE = 'noetl_time_zone'

/** The time that running things are measured by, a second exact, and the zone in which times are shown. */
class Now {
  ms = $state(Date.now())
  utc = $state(localStorage.getItem(ZONE) !== 'local')

  constructor() {
    setInterval(() => {
      if (!document.hidden) this.ms = Date.now()
    }, 1000)
  }

  switchZone(): void {
    this.utc = !this.utc
    localStorage.setItem(ZONE, this.utc ? 'utc' : 'local')
  }

  /** A time as tables show it; `exact` to the millisecond. */
  show(iso: string, exact = false): string {
    return clock(iso, this.utc, this.ms, exact)
  }

  /** A time in both zones. */
  whole(iso: string): string {
    return `${instant(iso, true)}\n${instant(iso, false)}`
  }
}

export const now = new Now()
