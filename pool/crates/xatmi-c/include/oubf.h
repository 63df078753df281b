/*
 * oubf.h - functions of ubf.h with a context in front; see oatmi.h.
 */
#ifndef POLLUX_OUBF_H
#define POLLUX_OUBF_H

#include "oatmi.h"
#include "ubf.h"

#ifdef __cplusplus
extern "C" {
#endif

extern int *O_Bget_Ferror_addr(const TPCONTEXT_T *p_ctxt);
#define OBerror(p_ctxt) (*O_Bget_Ferror_addr(p_ctxt))

POLLUX_IN_CONTEXT(int, Blen, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, BFLDOCC occurrence), (ubf, id, occurrence))
POLLUX_IN_CONTEXT(int, CBadd, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, const char *value, BFLDLEN len, int type),
    (ubf, id, value, len, type))
POLLUX_IN_CONTEXT(int, CBchg,
    (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, BFLDOCC occurrence, const char *value, BFLDLEN len, int type), (ubf,
    id, occurrence, value, len, type))
POLLUX_IN_CONTEXT(int, CBget,
    (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, BFLDOCC occurrence, char *value, BFLDLEN *len, int type), (ubf, id,
    occurrence, value, len, type))
POLLUX_IN_CONTEXT(int, Bdel, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, BFLDOCC occurrence), (ubf, id, occurrence))
POLLUX_IN_CONTEXT(int, Bpres, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, BFLDOCC occurrence), (ubf, id, occurrence))
POLLUX_IN_CONTEXT(int, Bproj, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID *list), (ubf, list))
POLLUX_IN_CONTEXT(int, Bprojcpy, (TPCONTEXT_T *p_ctxt, UBFH *to, UBFH *from, BFLDID *list), (to, from, list))
POLLUX_IN_CONTEXT(BFLDID, Bfldid, (TPCONTEXT_T *p_ctxt, const char *name), (name))
POLLUX_IN_CONTEXT(char *, Bfname, (TPCONTEXT_T *p_ctxt, BFLDID id), (id))
POLLUX_IN_CONTEXT(int, Bcpy, (TPCONTEXT_T *p_ctxt, UBFH *to, UBFH *from), (to, from))
POLLUX_IN_CONTEXT(int, Bchg,
    (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, BFLDOCC occurrence, const char *value, BFLDLEN len), (ubf, id,
    occurrence, value, len))
POLLUX_IN_CONTEXT(int, Binit, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDLEN size), (ubf, size))
POLLUX_IN_CONTEXT(int, Bnext,
    (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID *id, BFLDOCC *occurrence, char *value, BFLDLEN *len), (ubf, id,
    occurrence, value, len))
POLLUX_IN_CONTEXT(int, Bnext2,
    (TPCONTEXT_T *p_ctxt, Bnext_state_t *state, UBFH *ubf, BFLDID *id, BFLDOCC *occurrence, char *value,
    BFLDLEN *len, char **data), (state, ubf, id, occurrence, value, len, data))
POLLUX_IN_CONTEXT(int, Bget,
    (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, BFLDOCC occurrence, char *value, BFLDLEN *len), (ubf, id, occurrence,
    value, len))
POLLUX_IN_CONTEXT(char *, Bboolco, (TPCONTEXT_T *p_ctxt, const char *expression), (expression))
POLLUX_IN_CONTEXT(char *, Bfind, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, BFLDOCC occurrence, BFLDLEN *len),
    (ubf, id, occurrence, len))
POLLUX_IN_CONTEXT(int, Bboolev, (TPCONTEXT_T *p_ctxt, UBFH *ubf, const char *tree), (ubf, tree))
POLLUX_IN_CONTEXT(double, Bfloatev, (TPCONTEXT_T *p_ctxt, UBFH *ubf, const char *tree), (ubf, tree))
POLLUX_IN_CONTEXT(int, Badd, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, const char *value, BFLDLEN len),
    (ubf, id, value, len))
POLLUX_IN_CONTEXT(int, Baddfast,
    (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, const char *value, BFLDLEN len, Bfld_loc_info_t *place), (ubf, id,
    value, len, place))
POLLUX_IN_CONTEXT(char *, Becodestr, (TPCONTEXT_T *p_ctxt, int error), (error))
POLLUX_IN_CONTEXT_VOID(B_error, (TPCONTEXT_T *p_ctxt, const char *word), (word))
POLLUX_IN_CONTEXT(char *, Bstrerror, (TPCONTEXT_T *p_ctxt, int error), (error))
POLLUX_IN_CONTEXT(BFLDID, Bmkfldid, (TPCONTEXT_T *p_ctxt, int type, BFLDID number), (type, number))
POLLUX_IN_CONTEXT(BFLDOCC, Boccur, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id), (ubf, id))
POLLUX_IN_CONTEXT(long, Bused, (TPCONTEXT_T *p_ctxt, UBFH *ubf), (ubf))
POLLUX_IN_CONTEXT(int, Bfldtype, (TPCONTEXT_T *p_ctxt, BFLDID id), (id))
POLLUX_IN_CONTEXT(int, Bdelall, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id), (ubf, id))
POLLUX_IN_CONTEXT(int, Bdelete, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID *list), (ubf, list))
POLLUX_IN_CONTEXT(BFLDOCC, Bfldno, (TPCONTEXT_T *p_ctxt, BFLDID id), (id))
POLLUX_IN_CONTEXT(long, Bunused, (TPCONTEXT_T *p_ctxt, UBFH *ubf), (ubf))
POLLUX_IN_CONTEXT(long, Bsizeof, (TPCONTEXT_T *p_ctxt, UBFH *ubf), (ubf))
POLLUX_IN_CONTEXT(char *, Btype, (TPCONTEXT_T *p_ctxt, BFLDID id), (id))
POLLUX_IN_CONTEXT(int, Bfree, (TPCONTEXT_T *p_ctxt, UBFH *ubf), (ubf))
POLLUX_IN_CONTEXT(UBFH *, Balloc, (TPCONTEXT_T *p_ctxt, BFLDOCC fields, BFLDLEN bytes), (fields, bytes))
POLLUX_IN_CONTEXT(UBFH *, Brealloc, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDOCC fields, BFLDLEN bytes),
    (ubf, fields, bytes))
POLLUX_IN_CONTEXT(int, Bupdate, (TPCONTEXT_T *p_ctxt, UBFH *to, UBFH *from), (to, from))
POLLUX_IN_CONTEXT(int, Bconcat, (TPCONTEXT_T *p_ctxt, UBFH *to, UBFH *from), (to, from))
POLLUX_IN_CONTEXT(char *, CBfind,
    (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, BFLDOCC occurrence, BFLDLEN *len, int type), (ubf, id, occurrence,
    len, type))
POLLUX_IN_CONTEXT(char *, CBgetalloc,
    (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, BFLDOCC occurrence, int type, BFLDLEN *extra), (ubf, id, occurrence,
    type, extra))
POLLUX_IN_CONTEXT(BFLDOCC, CBfindocc,
    (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, const char *value, BFLDLEN len, int type), (ubf, id, value, len,
    type))
POLLUX_IN_CONTEXT(BFLDOCC, Bfindocc, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, const char *value, BFLDLEN len),
    (ubf, id, value, len))
POLLUX_IN_CONTEXT(char *, Bgetalloc,
    (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, BFLDOCC occurrence, BFLDLEN *extra), (ubf, id, occurrence, extra))
POLLUX_IN_CONTEXT(char *, Bfindlast, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, BFLDOCC *occurrence, BFLDLEN *len),
    (ubf, id, occurrence, len))
POLLUX_IN_CONTEXT(int, Bgetlast,
    (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, BFLDOCC *occurrence, char *value, BFLDLEN *len), (ubf, id,
    occurrence, value, len))
POLLUX_IN_CONTEXT(int, Bprint, (TPCONTEXT_T *p_ctxt, UBFH *ubf), (ubf))
POLLUX_IN_CONTEXT(int, Bfprint, (TPCONTEXT_T *p_ctxt, UBFH *ubf, FILE *file), (ubf, file))
POLLUX_IN_CONTEXT(int, Bfprintcb,
    (TPCONTEXT_T *p_ctxt, UBFH *ubf, int (*take)(char **line, long len, void *data, int *is_printed, FILE *file,
    BFLDID field), void *data), (ubf, take, data))
POLLUX_IN_CONTEXT(char *, Btypcvt,
    (TPCONTEXT_T *p_ctxt, BFLDLEN *to_len, int to_type, const char *from, int from_type, BFLDLEN from_len), (to_len,
    to_type, from, from_type, from_len))
POLLUX_IN_CONTEXT(int, Bextread, (TPCONTEXT_T *p_ctxt, UBFH *ubf, FILE *file), (ubf, file))
POLLUX_IN_CONTEXT(int, Bextreadcb,
    (TPCONTEXT_T *p_ctxt, UBFH *ubf, long (*give)(char *line, long size, void *data), void *data), (ubf, give, data))
POLLUX_IN_CONTEXT(int, Bboolpr, (TPCONTEXT_T *p_ctxt, const char *tree, FILE *file), (tree, file))
POLLUX_IN_CONTEXT(int, Bboolprcb,
    (TPCONTEXT_T *p_ctxt, const char *tree, int (*take)(char *text, long len, void *data), void *data), (tree, take,
    data))
POLLUX_IN_CONTEXT(int, Bread, (TPCONTEXT_T *p_ctxt, UBFH *ubf, FILE *file), (ubf, file))
POLLUX_IN_CONTEXT(int, Bwrite, (TPCONTEXT_T *p_ctxt, UBFH *ubf, FILE *file), (ubf, file))
POLLUX_IN_CONTEXT(int, Bwritecb,
    (TPCONTEXT_T *p_ctxt, UBFH *ubf, long (*take)(char *bytes, long len, void *data), void *data), (ubf, take, data))
POLLUX_IN_CONTEXT_VOID(Btreefree, (TPCONTEXT_T *p_ctxt, char *tree), (tree))
POLLUX_IN_CONTEXT(int, Bboolsetcbf,
    (TPCONTEXT_T *p_ctxt, const char *name, long (*function)(UBFH *ubf, char *name)), (name, function))
POLLUX_IN_CONTEXT(int, Bboolsetcbf2,
    (TPCONTEXT_T *p_ctxt, const char *name, long (*function)(UBFH *ubf, char *name, char *text)), (name, function))
POLLUX_IN_CONTEXT(int, Badds, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, const char *text), (ubf, id, text))
POLLUX_IN_CONTEXT(int, Bchgs, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, BFLDOCC occurrence, const char *text),
    (ubf, id, occurrence, text))
POLLUX_IN_CONTEXT(int, Bgets, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, BFLDOCC occurrence, char *text),
    (ubf, id, occurrence, text))
POLLUX_IN_CONTEXT(char *, Bgetsa, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, BFLDOCC occurrence, BFLDLEN *extra),
    (ubf, id, occurrence, extra))
POLLUX_IN_CONTEXT(char *, Bfinds, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID id, BFLDOCC occurrence),
    (ubf, id, occurrence))
POLLUX_IN_CONTEXT(int, Bisubf, (TPCONTEXT_T *p_ctxt, UBFH *ubf), (ubf))
POLLUX_IN_CONTEXT(int, Bindex, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDOCC occurrence), (ubf, occurrence))
POLLUX_IN_CONTEXT(BFLDOCC, Bunindex, (TPCONTEXT_T *p_ctxt, UBFH *ubf), (ubf))
POLLUX_IN_CONTEXT(long, Bidxused, (TPCONTEXT_T *p_ctxt, UBFH *ubf), (ubf))
POLLUX_IN_CONTEXT(int, Brstrindex, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDOCC occurrence), (ubf, occurrence))
POLLUX_IN_CONTEXT(int, Bjoin, (TPCONTEXT_T *p_ctxt, UBFH *to, UBFH *from), (to, from))
POLLUX_IN_CONTEXT(int, Bojoin, (TPCONTEXT_T *p_ctxt, UBFH *to, UBFH *from), (to, from))
POLLUX_IN_CONTEXT(int, Bcmp, (TPCONTEXT_T *p_ctxt, UBFH *one, UBFH *two), (one, two))
POLLUX_IN_CONTEXT(int, Bsubset, (TPCONTEXT_T *p_ctxt, UBFH *whole, UBFH *part), (whole, part))
POLLUX_IN_CONTEXT(BFLDOCC, Bnum, (TPCONTEXT_T *p_ctxt, UBFH *ubf), (ubf))
POLLUX_IN_CONTEXT(long, Bneeded, (TPCONTEXT_T *p_ctxt, BFLDOCC fields, BFLDLEN bytes), (fields, bytes))
POLLUX_IN_CONTEXT(int, Bvnull,
    (TPCONTEXT_T *p_ctxt, const char *data, const char *name, BFLDOCC occurrence, const char *view), (data, name,
    occurrence, view))
POLLUX_IN_CONTEXT(int, Bvselinit, (TPCONTEXT_T *p_ctxt, char *data, const char *name, const char *view),
    (data, name, view))
POLLUX_IN_CONTEXT(int, Bvsinit, (TPCONTEXT_T *p_ctxt, char *data, const char *view), (data, view))
POLLUX_IN_CONTEXT_VOID(Bvrefresh, (TPCONTEXT_T *p_ctxt), ())
POLLUX_IN_CONTEXT(int, Bvopt, (TPCONTEXT_T *p_ctxt, const char *name, int option, const char *view),
    (name, option, view))
POLLUX_IN_CONTEXT(int, Bvftos, (TPCONTEXT_T *p_ctxt, UBFH *ubf, char *data, const char *view), (ubf, data, view))
POLLUX_IN_CONTEXT(int, Bvstof, (TPCONTEXT_T *p_ctxt, UBFH *ubf, const char *data, int mode, const char *view),
    (ubf, data, mode, view))
POLLUX_IN_CONTEXT(int, CBvget,
    (TPCONTEXT_T *p_ctxt, const char *data, const char *view, const char *name, BFLDOCC occurrence, char *value,
    BFLDLEN *len, int type, long flags), (data, view, name, occurrence, value, len, type, flags))
POLLUX_IN_CONTEXT(char *, CBvgetalloc,
    (TPCONTEXT_T *p_ctxt, const char *data, const char *view, const char *name, BFLDOCC occurrence, int type,
    long flags, BFLDLEN *extra), (data, view, name, occurrence, type, flags, extra))
POLLUX_IN_CONTEXT(int, CBvchg,
    (TPCONTEXT_T *p_ctxt, char *data, const char *view, const char *name, BFLDOCC occurrence, const char *value,
    BFLDLEN len, int type), (data, view, name, occurrence, value, len, type))
POLLUX_IN_CONTEXT(long, Bvsizeof, (TPCONTEXT_T *p_ctxt, const char *view), (view))
POLLUX_IN_CONTEXT(long, Bvcpy, (TPCONTEXT_T *p_ctxt, char *to, const char *from, const char *view), (to, from, view))
POLLUX_IN_CONTEXT(BFLDOCC, Bvoccur,
    (TPCONTEXT_T *p_ctxt, const char *data, const char *view, const char *name, BFLDOCC *most, BFLDOCC *real,
    long *bytes, int *type), (data, view, name, most, real, bytes, type))
POLLUX_IN_CONTEXT(int, Bvsetoccur,
    (TPCONTEXT_T *p_ctxt, char *data, const char *view, const char *name, BFLDOCC count), (data, view, name, count))
POLLUX_IN_CONTEXT(int, Bvnext,
    (TPCONTEXT_T *p_ctxt, struct Bvnext_state *state, const char *view, char *name, int *type, BFLDOCC *most,
    long *bytes), (state, view, name, type, most, bytes))
POLLUX_IN_CONTEXT(int, Bvcmp,
    (TPCONTEXT_T *p_ctxt, const char *one, const char *one_view, const char *two, const char *two_view), (one,
    one_view, two, two_view))
POLLUX_IN_CONTEXT(int, Bvprint, (TPCONTEXT_T *p_ctxt, const char *data, const char *view), (data, view))
POLLUX_IN_CONTEXT(int, Bvfprint, (TPCONTEXT_T *p_ctxt, const char *data, const char *view, FILE *file),
    (data, view, file))
POLLUX_IN_CONTEXT(int, Bvfprintcb,
    (TPCONTEXT_T *p_ctxt, const char *struct_data, const char *view, int (*take)(char **line, long len, void *data,
    int *is_printed, FILE *file, BFLDID field), void *data), (struct_data, view, take, data))
POLLUX_IN_CONTEXT(int, Bvextread, (TPCONTEXT_T *p_ctxt, char *data, const char *view, FILE *file), (data, view, file))
POLLUX_IN_CONTEXT(int, Bvextreadcb,
    (TPCONTEXT_T *p_ctxt, char *struct_data, const char *view, long (*give)(char *line, long size, void *data),
    void *data), (struct_data, view, give, data))
POLLUX_IN_CONTEXT(int, Bgetr, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID *path, char *value, BFLDLEN *len),
    (ubf, path, value, len))
POLLUX_IN_CONTEXT(int, CBgetr, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID *path, char *value, BFLDLEN *len, int type),
    (ubf, path, value, len, type))
POLLUX_IN_CONTEXT(char *, CBgetallocr, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID *path, int type, BFLDLEN *extra),
    (ubf, path, type, extra))
POLLUX_IN_CONTEXT(char *, Bfindr, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID *path, BFLDLEN *len), (ubf, path, len))
POLLUX_IN_CONTEXT(char *, CBfindr, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID *path, BFLDLEN *len, int type),
    (ubf, path, len, type))
POLLUX_IN_CONTEXT(int, Bpresr, (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID *path), (ubf, path))
POLLUX_IN_CONTEXT(int, CBvgetr,
    (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID *path, const char *name, BFLDOCC occurrence, char *value, BFLDLEN *len,
    int type, long flags), (ubf, path, name, occurrence, value, len, type, flags))
POLLUX_IN_CONTEXT(int, Bvnullr,
    (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID *path, const char *name, BFLDOCC occurrence), (ubf, path, name,
    occurrence))
POLLUX_IN_CONTEXT(char *, CBvgetallocr,
    (TPCONTEXT_T *p_ctxt, UBFH *ubf, BFLDID *path, const char *name, BFLDOCC occurrence, int type, long flags,
    BFLDLEN *extra), (ubf, path, name, occurrence, type, flags, extra))

#ifdef __cplusplus
}
#endif

#endif
