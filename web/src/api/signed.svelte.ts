import type { ApiError } from 'noetl-stream-client'

/** Whether the browser's session has ended while the page was looked at, as all calls and streams find it. */
class Signed {
  /** How the gateway refuses what is asked since; null while it does not. */
  out = $state.raw<ApiError | null>(null)

  refused(why: ApiError): void {
    this.out ??= why
  }

  /** Somebody has signed in. */
  in(): void {
    this.out = null
  }
}

export const signed = new Signed()
