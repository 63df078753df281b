/*
 * ubf.h - buffers of named, typed fields (UBF) of pollux.
 *
 * A buffer is memory of tpalloc("UBF", ...), or the caller's own after Binit (it starts at a
 * multiple of 8). Functions return -1, 0 or NULL for an error, as the line says, and leave its
 * number in Berror, which is per thread and 0 after a call that succeeds.
 */
#ifndef POLLUX_UBF_H
#define POLLUX_UBF_H

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int BFLDID;
typedef int BFLDLEN;
typedef int BFLDOCC;
typedef BFLDID BFLDID32; /* what headers made from field tables use */
typedef struct pollux_ubf UBFH;

/* Types of fields. A field's id is (type << 25) | number. */
#define BFLD_MIN 0
#define BFLD_SHORT 0
#define BFLD_LONG 1
#define BFLD_CHAR 2
#define BFLD_FLOAT 3
#define BFLD_DOUBLE 4
#define BFLD_STRING 5
#define BFLD_CARRAY 6
#define BFLD_INT 7
#define BFLD_PTR 9
#define BFLD_UBF 10
#define BFLD_VIEW 11
#define BFLD_MAX 11

#define BBADFLDID ((BFLDID)0)
#define BFIRSTFLDID ((BFLDID)0)
#define BMAXFLDNO 33554431

/* Errors: values of Berror. */
#define BMINVAL 0
#define BALIGNERR 2  /* the memory is not aligned */
#define BNOTFLD 3    /* the memory holds no fields */
#define BNOSPACE 4   /* the buffer, or the memory for a value, is too small */
#define BNOTPRES 5   /* the field or the occurrence is not there */
#define BBADFLD 6    /* no field id */
#define BTYPERR 7    /* no type */
#define BEUNIX 8     /* the system said no */
#define BBADNAME 9   /* no field of that name */
#define BMALLOC 10   /* no memory */
#define BSYNTAX 11   /* not well formed */
#define BFTOPEN 12   /* a field table could not be opened */
#define BFTSYNTAX 13 /* a field table is not well formed */
#define BEINVAL 14   /* an argument is not valid */
#define BBADTBL 16
#define BBADVIEW 17
#define BVFSYNTAX 18
#define BVFOPEN 19
#define BBADACM 20
#define BNOCNAME 21
#define BEBADOP 22
#define BMAXVAL 22

#define Berror (*pollux_berror_address())
extern int *pollux_berror_address(void);
extern char *Bstrerror(int error);

/* One value; `len` of Badd and Bchg counts for carray only. An occurrence of -1 is the last one,
 * for Bchg the next one. Bchg fills the gap before an occurrence with empty values, and deletes
 * the occurrence where the value is NULL. `*len` of Bget is the room, then the length; without it
 * (NULL) the whole value is written. Values may stand in the buffer itself, as Bfind finds them. */
extern int Badd(UBFH *ubf, BFLDID id, const char *value, BFLDLEN len);
extern int Bchg(UBFH *ubf, BFLDID id, BFLDOCC occurrence, const char *value, BFLDLEN len);
extern int Bget(UBFH *ubf, BFLDID id, BFLDOCC occurrence, char *value, BFLDLEN *len);
extern int Bdel(UBFH *ubf, BFLDID id, BFLDOCC occurrence);
extern int Bdelall(UBFH *ubf, BFLDID id);
extern int Bpres(UBFH *ubf, BFLDID id, BFLDOCC occurrence); /* 1 or 0 */
extern int Blen(UBFH *ubf, BFLDID id, BFLDOCC occurrence);
extern char *Bfind(UBFH *ubf, BFLDID id, BFLDOCC occurrence, BFLDLEN *len);

/* The same, from or to a value of the type `type`. */
extern int CBadd(UBFH *ubf, BFLDID id, const char *value, BFLDLEN len, int type);
extern int CBchg(UBFH *ubf, BFLDID id, BFLDOCC occurrence, const char *value, BFLDLEN len,
                 int type);
extern int CBget(UBFH *ubf, BFLDID id, BFLDOCC occurrence, char *value, BFLDLEN *len, int type);

/* All values. Bnext starts with *id = BFIRSTFLDID and returns 1, then 0 at the end. */
extern BFLDOCC Boccur(UBFH *ubf, BFLDID id);
extern BFLDOCC Bnum(UBFH *ubf);
extern int Bnext(UBFH *ubf, BFLDID *id, BFLDOCC *occurrence, char *value, BFLDLEN *len);

/* Whole buffers. The list of Bproj and Bprojcpy ends with BBADFLDID. */
extern int Binit(UBFH *ubf, BFLDLEN size);
extern int Bcpy(UBFH *to, UBFH *from);
extern int Bupdate(UBFH *to, UBFH *from);
extern int Bconcat(UBFH *to, UBFH *from);
extern int Bproj(UBFH *ubf, BFLDID *list);
extern int Bprojcpy(UBFH *to, UBFH *from, BFLDID *list);
extern int Bisubf(UBFH *ubf); /* 1 or 0 */
extern long Bsizeof(UBFH *ubf);
extern long Bused(UBFH *ubf);
extern long Bunused(UBFH *ubf);
extern int Bprint(UBFH *ubf);
extern int Bfprint(UBFH *ubf, FILE *file);

/* Ids and names; names come from the tables of FLDTBLDIR and FIELDTBLS. */
extern BFLDID Bfldid(const char *name); /* BBADFLDID for an error */
extern char *Bfname(BFLDID id);         /* NULL for an error */
extern int Bfldtype(BFLDID id);
extern BFLDOCC Bfldno(BFLDID id);
extern BFLDID Bmkfldid(int type, BFLDID number); /* BBADFLDID for an error */

#ifdef __cplusplus
}
#endif

#endif
