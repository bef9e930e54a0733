const DANGERS = ['Cancel', 'Cancel now', 'Delete', 'Discard', 'Revoke']

/** Whether what a verb does cannot be undone: its button is red. */
export const isDanger = (verb: string): boolean => DANGERS.includes(verb)
