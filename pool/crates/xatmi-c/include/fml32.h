/*
 * fml32.h - the names that FML32 programs use, for the functions of ubf.h.
 *
 * A program that was written with FML32 calls is compiled again with this header. Values of FLD_*,
 * error numbers and ids are those of ubf.h: make headers from field tables anew.
 */
#ifndef POLLUX_FML32_H
#define POLLUX_FML32_H

#include "ubf.h"

typedef UBFH FBFR32;
typedef BFLDID FLDID32;
typedef BFLDLEN FLDLEN32;
typedef BFLDOCC FLDOCC32;
typedef BVIEWFLD FVIEWFLD;

#define FLD_SHORT BFLD_SHORT
#define FLD_LONG BFLD_LONG
#define FLD_CHAR BFLD_CHAR
#define FLD_FLOAT BFLD_FLOAT
#define FLD_DOUBLE BFLD_DOUBLE
#define FLD_STRING BFLD_STRING
#define FLD_CARRAY BFLD_CARRAY
#define FLD_PTR BFLD_PTR
#define FLD_FML32 BFLD_UBF
#define FLD_VIEW32 BFLD_VIEW
#define FMLTYPE32 "FML32"

#define BADFLDID BBADFLDID
#define FIRSTFLDID BFIRSTFLDID
#define BADFLDOCC BBADFLDOCC

#define FALIGNERR BALIGNERR
#define FNOTFLD BNOTFLD
#define FNOSPACE BNOSPACE
#define FNOTPRES BNOTPRES
#define FBADFLD BBADFLD
#define FTYPERR BTYPERR
#define FEUNIX BEUNIX
#define FBADNAME BBADNAME
#define FMALLOC BMALLOC
#define FSYNTAX BSYNTAX
#define FFTOPEN BFTOPEN
#define FFTSYNTAX BFTSYNTAX
#define FEINVAL BEINVAL
#define FEBADOP BEBADOP

#define FBADVIEW BBADVIEW
#define FVFSYNTAX BVFSYNTAX
#define FVFOPEN BVFOPEN
#define FBADACM BBADACM
#define FNOCNAME BNOCNAME

#define FUPDATE BUPDATE
#define FOJOIN BOJOIN
#define FJOIN BJOIN
#define FCONCAT BCONCAT
#define F_FTOS B_FTOS
#define F_STOF B_STOF
#define F_OFF B_OFF
#define F_BOTH B_BOTH

#define FMINVAL BMINVAL
#define FMAXVAL BMAXVAL

#define Ferror32 Berror
#define Fstrerror32 Bstrerror
#define F_error32 B_error

/* A field of type ptr takes the pointer itself, where Badd and Bchg take the address of one. */
static __inline__ int Fadd32(UBFH *fbfr, BFLDID id, char *value, BFLDLEN len) {
  return Bfldtype(id) == BFLD_PTR ? Badd(fbfr, id, (char *)&value, 0) : Badd(fbfr, id, value, len);
}
static __inline__ int Fchg32(UBFH *fbfr, BFLDID id, BFLDOCC occ, char *value, BFLDLEN len) {
  return Bfldtype(id) == BFLD_PTR && value != 0 ? Bchg(fbfr, id, occ, (char *)&value, 0)
                                                : Bchg(fbfr, id, occ, value, len);
}

/* Values that are there in any case: an empty text and 0 where the field is not, or is of another type. */
static __inline__ char *Fvals32(UBFH *fbfr, BFLDID id, BFLDOCC occ) {
  char *value = Bfldtype(id) == BFLD_STRING ? Bfind(fbfr, id, occ, 0) : 0;
  return value != 0 ? value : (char *)"";
}
static __inline__ long Fvall32(UBFH *fbfr, BFLDID id, BFLDOCC occ) {
  long value = 0;
  int type = Bfldtype(id);
  if ((type != BFLD_LONG && type != BFLD_SHORT) || CBget(fbfr, id, occ, (char *)&value, 0, BFLD_LONG) != 0) value = 0;
  return value;
}

#define Fget32 Bget
#define Fdel32 Bdel
#define Fdelall32 Bdelall
#define Fpres32 Bpres
#define Flen32 Blen
#define Ffind32 Bfind
#define CFadd32 CBadd
#define CFchg32 CBchg
#define CFget32 CBget
#define Fadds32 Badds
#define Fchgs32 Bchgs
#define Fgets32 Bgets
#define Ffinds32 Bfinds
#define Fgetsa32 Bgetsa
#define Fgetalloc32 Bgetalloc
#define CFgetalloc32 CBgetalloc
#define CFfind32 CBfind
#define Ffindlast32 Bfindlast
#define Fgetlast32 Bgetlast
#define Ffindocc32 Bfindocc
#define CFfindocc32 CBfindocc
#define Ftypcvt32 Btypcvt
#define Foccur32 Boccur
#define Fnum32 Bnum
#define Fnext32 Bnext
#define Finit32 Binit
#define Fcpy32 Bcpy
#define Fupdate32 Bupdate
#define Fconcat32 Bconcat
#define Fproj32 Bproj
#define Fprojcpy32 Bprojcpy
#define Fjoin32 Bjoin
#define Fojoin32 Bojoin
#define Fdelete32 Bdelete
#define Fmove32 Bmove
#define Fcmp32 Bcmp
#define Falloc32 Balloc
#define Frealloc32 Brealloc
#define Ffree32 Bfree
#define Fneeded32 Bneeded
#define Findex32 Bindex
#define Frstrindex32 Brstrindex
#define Funindex32 Bunindex
#define Fidxused32 Bidxused
#define Fielded32 Bisubf
#define Fsizeof32 Bsizeof
#define Fused32 Bused
#define Funused32 Bunused
#define Fprint32 Bprint
#define Ffprint32 Bfprint
#define Fwrite32 Bwrite
#define Fread32 Bread
#define Fextread32 Bextread
#define Fboolco32 Bboolco
#define Fboolev32 Bboolev
#define Ffloatev32 Bfloatev
#define Fboolpr32 Bboolpr
#define Fldid32 Bfldid
#define Fname32 Bfname
#define Fldtype32 Bfldtype
#define Fldno32 Bfldno
#define Ftype32 Btype
#define Fmkfldid32 Bmkfldid

#define Fvftos32 Bvftos
#define Fvstof32 Bvstof
#define Fvnull32 Bvnull
#define Fvselinit32 Bvselinit
#define Fvsinit32 Bvsinit
#define Fvopt32 Bvopt
#define Fvrefresh32 Bvrefresh

#endif
