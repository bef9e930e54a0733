import type { Caller } from 'noetl-stream-client'
import { client, session } from './client'
import { findCsrfToken, forgetCsrfToken, shareCsrfToken } from './csrf'

/** Exchanges the code in the fragment, if there is one, for a session; the address loses it at once. */
export async function signInFromAddress(): Promise<void> {
  const code = new URLSearchParams(location.hash.slice(1)).get('code')
  if (code === null) return
  history.replaceState(null, '', location.pathname + location.search)
  await signIn(code)
}

/** `given`: a code, or the link that has it. */
export async function signIn(given: string): Promise<void> {
  const { csrf_token } = await session.signIn({ code: given.trim().replace(/^.*#code=/, '') })
  shareCsrfToken(csrf_token)
}

export async function signOut(): Promise<void> {
  await session.signOut()
  forgetCsrfToken()
}

/** Who has signed in, in this tab or another; null: nobody. */
export const me = async (): Promise<Caller | null> => ((await findCsrfToken()) ? client.me() : null)
