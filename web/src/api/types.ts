export type * from '../../../clients/typescript/src/documents'
