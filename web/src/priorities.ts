/** What waits for a worker comes from the highest of these. */
export const PRIORITIES = [9, 8, 7, 6, 5, 4, 3, 2, 1, 0] as const

/** Of an execution whose playbook names none. */
export const DEFAULT_PRIORITY = 5
