/*
 * ubf.h - buffers of named, typed fields (UBF) of pollux.
 *
 * A buffer is memory of tpalloc("UBF", ...), or the caller's own after Binit (it starts at a
 * multiple of 8). Functions return -1, 0 or NULL for an error, as the line says, and leave its
 * number in Berror, which is per thread and 0 after a call that succeeds.
 */
#ifndef POLLUX_UBF_H
#define POLLUX_UBF_H

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/types.h>

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

#define BBADFLDID 0
#define BFIRSTFLDID 0
#define BBADFLDOCC -1
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
#define _Bget_Ferror_addr pollux_berror_address
#define ndrx_Bget_Ferror_addr pollux_berror_address
extern char *Bstrerror(int error);
extern char *Becodestr(int error); /* its name alone */
extern void B_error(const char *word); /* the last error to standard error, behind the word */

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

/* The same, from or to a value of the type `type`. A float is the text of %.5f, a double of %.6f, a
 * ptr of %#lx. Buffers and views are not converted: BEBADOP. */
extern int CBadd(UBFH *ubf, BFLDID id, const char *value, BFLDLEN len, int type);
extern int CBchg(UBFH *ubf, BFLDID id, BFLDOCC occurrence, const char *value, BFLDLEN len,
                 int type);
extern int CBget(UBFH *ubf, BFLDID id, BFLDOCC occurrence, char *value, BFLDLEN *len, int type);

/* Values by other ways. What Bgetalloc, CBgetalloc and Btypcvt give is freed by free(); `*extra` is
 * room to be added, then the length. What CBfind points at stays until the thread's next CBfind or
 * CBfindr. `occurrence` and `len` may be NULL. NULL or -1 for an error. */
extern char *Bgetalloc(UBFH *ubf, BFLDID id, BFLDOCC occurrence, BFLDLEN *extra);
extern char *CBgetalloc(UBFH *ubf, BFLDID id, BFLDOCC occurrence, int type, BFLDLEN *extra);
extern char *CBfind(UBFH *ubf, BFLDID id, BFLDOCC occurrence, BFLDLEN *len, int type);
extern char *Bfindlast(UBFH *ubf, BFLDID id, BFLDOCC *occurrence, BFLDLEN *len);
extern int Bgetlast(UBFH *ubf, BFLDID id, BFLDOCC *occurrence, char *value, BFLDLEN *len);
extern BFLDOCC Bfindocc(UBFH *ubf, BFLDID id, const char *value, BFLDLEN len);
extern BFLDOCC CBfindocc(UBFH *ubf, BFLDID id, const char *value, BFLDLEN len, int type);
extern char *Btypcvt(BFLDLEN *to_len, int to_type, const char *from, int from_type,
                     BFLDLEN from_len);

/* From and to text, without a length. */
extern int Badds(UBFH *ubf, BFLDID id, const char *text);
extern int Bchgs(UBFH *ubf, BFLDID id, BFLDOCC occurrence, const char *text);
extern int Bgets(UBFH *ubf, BFLDID id, BFLDOCC occurrence, char *text);
extern char *Bgetsa(UBFH *ubf, BFLDID id, BFLDOCC occurrence, BFLDLEN *extra);
extern char *Bfinds(UBFH *ubf, BFLDID id, BFLDOCC occurrence);

/* Badd right behind the field that was added before with the same place, without a search: `*place`
 * is all zero at the start, the ids do not go down (BEINVAL), and nothing else changes the buffer
 * meanwhile. */
typedef struct pollux_place {
  UBFH *ubf;
  BFLDID id;
  int at;
} Bfld_loc_info_t;
extern int Baddfast(UBFH *ubf, BFLDID id, const char *value, BFLDLEN len, Bfld_loc_info_t *place);
extern int CBaddfast(UBFH *ubf, BFLDID id, const char *value, BFLDLEN len, int type, Bfld_loc_info_t *place);

/* Fields of inner buffers. A path is 1 to 17 pairs of a field and its occurrence, then BBADFLDOCC;
 * each field but the last holds a buffer. What is not a path, as one with -1 for an occurrence, is BBADFLD, one through a field that holds no buffer BEBADOP. */
extern int Bgetr(UBFH *ubf, BFLDID *path, char *value, BFLDLEN *len);
extern int CBgetr(UBFH *ubf, BFLDID *path, char *value, BFLDLEN *len, int type);
extern char *Bfindr(UBFH *ubf, BFLDID *path, BFLDLEN *len);
extern char *CBfindr(UBFH *ubf, BFLDID *path, BFLDLEN *len, int type);
extern int Bpresr(UBFH *ubf, BFLDID *path); /* 1 or 0 */
extern char *CBgetallocr(UBFH *ubf, BFLDID *path, int type, BFLDLEN *extra);

/* The same with the path as the last arguments. */
extern int Bgetrv(UBFH *ubf, char *value, BFLDLEN *len, ...);
extern int CBgetrv(UBFH *ubf, char *value, BFLDLEN *len, int type, ...);
extern char *Bfindrv(UBFH *ubf, BFLDLEN *len, ...);
extern char *CBfindrv(UBFH *ubf, BFLDLEN *len, int type, ...);
extern int Bpresrv(UBFH *ubf, ...);
extern char *CBgetallocrv(UBFH *ubf, int type, BFLDLEN *extra, ...);

/* All values. Bnext starts with *id = BFIRSTFLDID and returns 1, then 0 at the end; without
 * `value` (NULL) `*len` becomes the length all the same. For a view, `value` becomes a BVIEWFLD with the struct right behind it,
 * and `*len` the length of the struct. */
extern BFLDOCC Boccur(UBFH *ubf, BFLDID id);
extern BFLDOCC Bnum(UBFH *ubf);
typedef struct pollux_next_state {
  long reserved[4];
} Bnext_state_t;
/* Bnext with a state, which it leaves alone, and with the address of the value. */
extern int Bnext2(Bnext_state_t *state, UBFH *ubf, BFLDID *id, BFLDOCC *occurrence, char *value, BFLDLEN *len,
                  char **data);
extern int Bnext(UBFH *ubf, BFLDID *id, BFLDOCC *occurrence, char *value, BFLDLEN *len);

/* Whole buffers. The list of Bproj and Bprojcpy ends with BBADFLDID;
 * NULL keeps no field. */
extern int Binit(UBFH *ubf, BFLDLEN size);
extern int Bcpy(UBFH *to, UBFH *from);
#define B16to32(to, from) Bcpy((to), (from)) /* there is one kind of buffers */
#define B32to16(to, from) Bcpy((to), (from))
extern int Bupdate(UBFH *to, UBFH *from);
extern int Bconcat(UBFH *to, UBFH *from);
extern int Bproj(UBFH *ubf, BFLDID *list);
extern int Bprojcpy(UBFH *to, UBFH *from, BFLDID *list);
extern int Bjoin(UBFH *to, UBFH *from);  /* keeps what both have, with the values of `from` */
extern int Bojoin(UBFH *to, UBFH *from); /* takes the values of `from` where both have one */
extern int Bdelete(UBFH *ubf, BFLDID *list);
extern int Bmove(void *to, UBFH *from); /* to memory of at least Bused(from) bytes */
extern int Bcmp(UBFH *one, UBFH *two);  /* -1, 0 or 1; -2 for an error */
extern int Bsubset(UBFH *whole, UBFH *part); /* 1 or 0 */
extern int Bisubf(UBFH *ubf); /* 1 or 0 */
extern long Bsizeof(UBFH *ubf);
extern long Bused(UBFH *ubf);
extern long Bunused(UBFH *ubf);
extern int Bprint(UBFH *ubf);
extern int Bfprint(UBFH *ubf, FILE *file);

/* Buffers in files. Bread takes what Bwrite wrote. Bextread reads what Bprint prints, up to a blank
 * line or the end: `name<tab>value`, with `+` in front to change the first occurrence, `-` to delete
 * it, `=` to give it the value of the field whose name stands there; `#` is a remark. The buffer
 * stays as it was after an error. */
extern int Bwrite(UBFH *ubf, FILE *file);
extern int Bread(UBFH *ubf, FILE *file);
extern int Bextread(UBFH *ubf, FILE *file);

/* The same to and from functions, which may be given `data`. A line has its new line and a NUL, which `len` counts;
 * `field` is what it begins with, `*is_printed` and `file` (NULL) are not looked at, 0 is well. A function that gives lines
 * or bytes returns how many bytes it wrote to the `size` that there are, 0 at the end; one that takes bytes, how many it took.
 * BEUNIX: the function failed. */
extern int Bfprintcb(UBFH *ubf,
                     int (*take)(char **line, long len, void *data, int *is_printed, FILE *file, BFLDID field),
                     void *data);
extern int Bextreadcb(UBFH *ubf, long (*give)(char *line, long size, void *data), void *data);
extern int Bwritecb(UBFH *ubf, long (*take)(char *bytes, long len, void *data), void *data);
extern int Breadcb(UBFH *ubf, long (*give)(char *bytes, long size, void *data), void *data);
extern int Bboolprcb(const char *tree, int (*take)(char *text, long len, void *data), void *data);

/* Boolean expressions, as in "NAME %% 'J.*n' && AGE[?] >= 18"; docs/reference/xatmi.md has their
 * grammar. A tree is freed by Btreefree or free(); it may be copied, its first two bytes are its
 * length, the low one first. Bboolev gives 1 or 0; Bfloatev -1 for an error, which Berror tells. */
extern char *Bboolco(const char *expression); /* NULL for an error */
extern int Bboolev(UBFH *ubf, const char *tree);
extern double Bfloatev(UBFH *ubf, const char *tree);
extern int Bboolpr(const char *tree, FILE *file); /* with all parentheses */
extern void Btreefree(char *tree);

/* Functions in expressions, for all threads: `NAME()` gives what `function` gives for the buffer, `NAME('text')` that of
 * Bboolsetcbf2. NULL takes one back; a tree that calls it is BEINVAL or BSYNTAX then. Names have 1 to 64 letters, digits and _
 * (BBADNAME), texts up to 510 bytes without a quote. */
extern int Bboolsetcbf(const char *name, long (*function)(UBFH *ubf, char *name));
extern int Bboolsetcbf2(const char *name, long (*function)(UBFH *ubf, char *name, char *text));

/* Memory. `bytes` is what all values take, strings with their NUL; both numbers are above 0. Buffers
 * of Balloc are those of tpalloc("UBF", ...): either frees, and they can be sent. */
extern UBFH *Balloc(BFLDOCC fields, BFLDLEN bytes);
extern UBFH *Brealloc(UBFH *ubf, BFLDOCC fields, BFLDLEN bytes);
extern int Bfree(UBFH *ubf);
extern long Bneeded(BFLDOCC fields, BFLDLEN bytes);

/* There is no index; these succeed and do nothing, with any pointer. */
extern int Bindex(UBFH *ubf, BFLDOCC occurrence);
extern int Brstrindex(UBFH *ubf, BFLDOCC occurrence);
extern BFLDOCC Bunindex(UBFH *ubf);
extern long Bidxused(UBFH *ubf);

/* Ids and names; names come from the tables of FLDTBLDIR and FIELDTBLS. */
extern BFLDID Bfldid(const char *name); /* BBADFLDID for an error */
extern char *Bfname(BFLDID id);         /* NULL for an error */
extern int Bfldtype(BFLDID id);
extern char *Btype(BFLDID id); /* "short", "string", ...; NULL for an error */
extern BFLDOCC Bfldno(BFLDID id);
extern BFLDID Bmkfldid(int type, BFLDID number); /* BBADFLDID for an error */

/* Enduro/X has fields in a database beside those of tables. There is none here: it is not found (0), holds no field
 * (BBADNAME), and closing or removing it does nothing. */
extern int Bflddbload(void);
extern void Bflddbunload(void);
extern int Bflddbunlink(void);
extern BFLDID Bflddbid(const char *name); /* BBADFLDID for an error */
extern char *Bflddbname(BFLDID id);       /* NULL for an error */

/* Views: structs of C that viewc made from a file. Files are those that VIEWDIR and VIEWFILES (or VIEWDIR32 and
 * VIEWFILES32) name, read once. `data` is a struct of the view `view`, `name` a member of it, `type` may be BFLD_INT too.
 * An occurrence is one of the array, from 0. */
#define B_FTOS 1 /* Bvopt: from fields to the struct only */
#define B_STOF 2 /* from the struct to fields only */
#define B_OFF 3
#define B_BOTH 4
#define BUPDATE 1 /* Bvstof: as Bupdate; null values stay out, but for BCONCAT */
#define BOJOIN 2
#define BJOIN 3
#define BCONCAT 4
#define BVACCESS_NOTNULL 0x00000001 /* BNOTPRES for a null value, and beyond the count */
#define NDRX_VIEW_CNAME_LEN 256
#define NDRX_VIEW_NAME_LEN 33
/* What a field of type view is given as and found as. Bget and the like copy the struct to `data`; Bfind and the like give one
 * of the thread, good until its next; that of Bgetalloc has its struct behind it. Lengths are those of the struct. */
typedef struct pollux_view_field {
  unsigned int vflags; /* 0 */
  char vname[NDRX_VIEW_NAME_LEN + 1];
  char *data;
} BVIEWFLD;
typedef struct Bvnext_state {
  const void *v;
  const void *vel; /* NULL at the end */
} Bvnext_state_t;
extern int CBvget(const char *data, const char *view, const char *name, BFLDOCC occurrence,
                  char *value, BFLDLEN *len, int type, long flags);
extern int CBvchg(char *data, const char *view, const char *name, BFLDOCC occurrence,
                  const char *value, BFLDLEN len, int type); /* raises the count if need be */
extern char *CBvgetalloc(const char *data, const char *view, const char *name, BFLDOCC occurrence,
                         int type, long flags, BFLDLEN *extra);
extern int Bvnull(const char *data, const char *name, BFLDOCC occurrence, const char *view);
extern int Bvselinit(char *data, const char *name, const char *view);
extern int Bvsinit(char *data, const char *view);
extern int Bvopt(const char *name, int option, const char *view); /* of this process */
extern int Bvftos(UBFH *ubf, char *data, const char *view);
extern int Bvstof(UBFH *ubf, const char *data, int mode, const char *view);
extern long Bvsizeof(const char *view);
extern long Bvcpy(char *to, const char *from, const char *view);
extern BFLDOCC Bvoccur(const char *data, const char *view, const char *name, BFLDOCC *most,
                       BFLDOCC *real, long *bytes, int *type);
extern int Bvsetoccur(char *data, const char *view, const char *name, BFLDOCC count);
extern int Bvnext(Bvnext_state_t *state, const char *view, char *name, int *type, BFLDOCC *most,
                  long *bytes); /* 1, or 0 at the end; `view` is NULL but for the first */
extern int Bvcmp(const char *one, const char *one_view, const char *two, const char *two_view);
extern int Bvprint(const char *data, const char *view);
extern int Bvfprint(const char *data, const char *view, FILE *file);
extern int Bvextread(char *data, const char *view, FILE *file);
extern int Bvfprintcb(const char *struct_data, const char *view,
                      int (*take)(char **line, long len, void *data, int *is_printed, FILE *file, BFLDID field),
                      void *data); /* `field` is 0 */
extern int Bvextreadcb(char *struct_data, const char *view,
                       long (*give)(char *line, long size, void *data), void *data);
/* The same of the struct in a field of type view, by a path of fields; with v, the path is the last arguments. */
extern int CBvgetr(UBFH *ubf, BFLDID *path, const char *name, BFLDOCC occurrence, char *value, BFLDLEN *len,
                   int type, long flags);
extern char *CBvgetallocr(UBFH *ubf, BFLDID *path, const char *name, BFLDOCC occurrence, int type, long flags,
                          BFLDLEN *extra);
extern int Bvnullr(UBFH *ubf, BFLDID *path, const char *name, BFLDOCC occurrence);
extern int CBvgetrv(UBFH *ubf, const char *name, BFLDOCC occurrence, char *value, BFLDLEN *len, int type,
                    long flags, ...);
extern char *CBvgetallocrv(UBFH *ubf, const char *name, BFLDOCC occurrence, int type, long flags,
                           BFLDLEN *extra, ...);
extern int Bvnullrv(UBFH *ubf, const char *name, BFLDOCC occurrence, ...);
extern void Bvrefresh(void);

#ifdef __cplusplus
}
#endif

#endif
