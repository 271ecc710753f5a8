(* techmap_celltype = "LUT4" *)
module operators (input A, B, C, D, output Z);
  parameter INIT = 0;
  assign Z = INIT >> {D, C, B, A};
endmodule
