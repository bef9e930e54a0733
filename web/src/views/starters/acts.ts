import type { Act } from '../../acts'
import { segment } from '../../api/client'

/** Changes of what starts executions by itself: what is sent, and the same as a line of the shell. */

export type Noun = 'schedule' | 'trigger'

/** Where one is, below what, if anything, it has. */
export const at = (noun: Noun, path: string, below = ''): string => `/${noun}s/${segment(path)}${below}`

export const pauses = (noun: Noun, path: string): Act => asks(noun, path, 'pause')
export const resumes = (noun: Noun, path: string): Act => asks(noun, path, 'resume')

export const deletes = (noun: Noun, path: string): Act => ({ ...asks(noun, path, 'delete'), method: 'DELETE', path: at(noun, path) })

/** Args: command, if the shell has another word for it. */
export const asks = (noun: Noun, path: string, verb: string, command = verb): Act => ({
  method: 'POST',
  path: at(noun, path, `/${verb}`),
  cli: ['noetl-stream', noun, command, path],
})
