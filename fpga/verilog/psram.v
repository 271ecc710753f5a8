  wire psram_ck, psram_ck_n, psram_cs_n, psram_reset_n, psram_dq_oe, psram_rwds_oe;
  wire [{width}:0] psram_dq_o;
  wire [{last}:0] psram_rwds_o;
  // The ports' names are those by which the tools know the pins in the package.
  assign O_psram_ck = {{{dies}{{psram_ck}}}};
  assign O_psram_ck_n = {{{dies}{{psram_ck_n}}}};
  assign O_psram_cs_n = {{{dies}{{psram_cs_n}}}};
  assign O_psram_reset_n = {{{dies}{{psram_reset_n}}}};
  assign IO_psram_dq = psram_dq_oe ? psram_dq_o : {{{bits}{{1'bz}}}};
  assign IO_psram_rwds = psram_rwds_oe ? psram_rwds_o : {{{dies}{{1'bz}}}};
